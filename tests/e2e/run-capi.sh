#!/usr/bin/env bash
# The C and C++ API as a user has it: installed, moved, found by CMake and by pkg-config, without a
# GPU. What the libraries export and need; examples and tests without warnings.
set -uo pipefail
root=$GPT2C_SOURCE_DIR
. "$root/tests/skip.bash"
build=$(dirname "$(command -v gpt2c)")/..
command -v c++ >/dev/null || skip "no C++ compiler"
nm -D "$build/lib/libgpt2c.so" | grep -q '__asan_init\|__tsan_init' &&
  skip "a C program cannot load a sanitized library"
failed=0
fail() {
  echo "FAIL: $*"
  failed=1
}

rm -rf installed moved examples folder
cmake --install "$build" --component runtime --prefix "$PWD/installed" >install.log 2>&1 ||
  { cat install.log; exit 1; }
mv installed moved
prefix=$PWD/moved
lib=$(dirname "$(find "$prefix" -name libgpt2c.so)")

# Of every kind of symbol, those of the API alone.
exported() { nm -D --defined-only "$lib/$1" | awk '$NF !~ /^(gpt2c_|GPT2C_)/ {print $NF}'; }
[ -z "$(exported libgpt2c.so)" ] || fail "libgpt2c.so exports $(exported libgpt2c.so)"
[ "$(nm -D --defined-only "$lib/libgpt2c_cpu.so.0" | awk '{print $NF}' | sort | xargs)" = \
  "gpt2c_device_abi gpt2c_device_open" ] || fail "libgpt2c_cpu.so.0 exports other functions"
for function in $(sed -n 's/^GPT2C_API .*[ *]\(gpt2c_[a-z_]*\)(.*/\1/p' "$root/include/gpt2c.h"); do
  nm -D --defined-only "$lib/libgpt2c.so" | grep -q " $function$" || fail "no $function"
done
readelf -d "$lib/libgpt2c.so" | grep -q 'SONAME.*\[libgpt2c\.so\.0\]' || fail "no soname"
needed=$(readelf -d "$lib/libgpt2c.so" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' |
  grep -vE '^(libc|libm|libdl|libpthread|ld-linux-x86-64)\.so')
[ -z "$needed" ] || fail "libgpt2c.so needs $needed"

gpt2c "$root/examples/sample/model.onnx" -o sample.plan --gpu-arch=none 2>/dev/null || exit 1
gpt2c-run sample.plan --device=cpu --prompt="The river" -n 12 >expected.txt 2>/dev/null || exit 1

# By CMake, out of the installed examples.
cmake -S "$prefix/share/gpt2c/examples" -B examples -DCMAKE_PREFIX_PATH="$prefix" \
  -DCMAKE_C_FLAGS="-Wall -Wextra -Wpedantic -Werror" \
  -DCMAKE_CXX_FLAGS="-Wall -Wextra -Wpedantic -Werror" >cmake.log 2>&1 &&
  cmake --build examples >>cmake.log 2>&1 || { cat cmake.log; exit 1; }
examples/generate sample.plan "The river" cpu 12 2>notes.txt | cmp - expected.txt ||
  fail "generate: $(cat notes.txt)"
grep -q "^CPU, .* room for 8 sequences of 512 tokens$" notes.txt || fail "$(cat notes.txt)"
[ "$(examples/sample sample.plan "The river was" cpu | grep -c '^[123]: .* a token)$')" = 3 ] ||
  fail "sample"

# Two requests at once: each is answered as it is alone.
examples/requests sample.plan cpu 12 "A" "The river" >requests.txt 2>notes.txt ||
  fail "requests: $(cat notes.txt)"
[ "$(grep -A9 '^2:' requests.txt)" = "2:$(cat expected.txt) (12 tokens)" ] ||
  fail "requests: $(cat requests.txt)"

# By pkg-config.
if command -v pkg-config >/dev/null; then
  export PKG_CONFIG_PATH=$lib/pkgconfig
  read -ra flags < <(pkg-config --cflags --libs gpt2c)
  cc -std=c11 -Wall -Wextra -Wpedantic -Werror "$root/examples/c-api/generate.c" "${flags[@]}" \
    -Wl,-rpath,"$lib" -o generate || exit 1
  ./generate sample.plan "The river" cpu 12 2>/dev/null | cmp - expected.txt || fail "pkg-config"
else
  echo "note: no pkg-config, its way is not tried"
fi
c++ -std=c++20 -Wall -Wextra -Wpedantic -Werror "$root/tests/e2e/capi/wrapper.cpp" \
  -I"$prefix/include" -L"$lib" -lgpt2c -Wl,-rpath,"$lib" -o wrapper || exit 1
cp -r "$root/examples/sample" folder
cp "$root/tests/e2e/chat-folder"/* folder
gpt2c folder/model.onnx -o chat.plan --gpu-arch=none --verify=off 2>/dev/null || exit 1
./wrapper sample.plan chat.plan || failed=1
echo '#include "gpt2c.hpp"' >old.cpp
errors=$(c++ -std=c++17 -fsyntax-only -I"$prefix/include" old.cpp 2>&1)
[ "$(grep -c "error:" <<<"$errors")" = 1 ] && grep -q "gpt2c.hpp needs C++20" <<<"$errors" ||
  fail "gpt2c.hpp under C++17: $errors"

# auto falls back to the CPU; a GPU that is asked for and is not there is an error with its reason.
examples/generate sample.plan "The river" auto 12 2>/dev/null | cmp - expected.txt || fail "auto"
expectError() { # CODE TEXT DEVICE
  out=$(examples/generate sample.plan "The river" "$3" 2>&1)
  rc=$?
  [ $rc = "$1" ] && grep -q "^error: .*$2" <<<"$out" || fail "$3: exit code $rc: $out"
}
expectError 6 "" cuda # the plan has no code for any GPU
expectError 1 "no device 'gpu'" gpu
# Without its library the CPU device says where it looked; another build's is not used.
mv "$lib/libgpt2c_cpu.so.0" "$lib/away"
expectError 6 "the CPU device is in libgpt2c_cpu.so.0" cpu
expectError 6 "the CPU device is in libgpt2c_cpu.so.0\|NVIDIA\|no image" auto
cc -shared -fPIC -x c - -o "$lib/libgpt2c_cpu.so.0" <<'C'
const char *gpt2c_device_abi(void) { return "0.0.1"; }
void gpt2c_device_open(void) {}
C
expectError 6 "is of another build (0.0.1)" cpu
rm -rf sample.plan chat.plan folder moved examples
exit $failed
