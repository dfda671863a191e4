#!/usr/bin/env bash
# scripts/check-install.sh ROOT [--build=BUILD] [--wheel=FILE] [--configure]: what people have who
# install gpt2c. ROOT is the root file system of a clean Debian 12, Ubuntu 24.04 or later, as
# debootstrap makes it; packages are installed there by its own apt. Needs root.
#
# From BUILD (default build) the C and C++ library, the examples and the tools are installed to
# ROOT/opt/gpt2c; in ROOT the examples are built by CMake and by pkg-config and run, and the tools
# run, with a compiler and nothing else of ours. The Python package is that of FILE, or that of
# BUILD where it was configured with GPT2C_PYTHON and ROOT's Python is of the same release.
# --configure: scripts/setup.sh prepares ROOT, too, and the sources are configured there. The last
# line counts: "N passed, N failed, N skipped".
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
source=$PWD
build=build
wheel=
configure=
root=
for argument in "$@"; do
  case $argument in
  --build=*) build=${argument#*=} ;;
  --wheel=*) wheel=$(realpath "${argument#*=}") ;;
  --configure) configure=1 ;;
  -*) echo "check-install: no option '$argument'; see the head of this script" >&2; exit 1 ;;
  *) root=$argument ;;
  esac
done
[ -x "$root/usr/bin/apt-get" ] || {
  echo "check-install: '$root' is no root with apt: debootstrap bookworm ROOT makes one" >&2
  exit 1
}
# A mount namespace of its own: nothing stays mounted.
[ -n "${GPT2C_IN_NAMESPACE:-}" ] ||
  GPT2C_IN_NAMESPACE=1 exec unshare -m --propagation private \
    bash "$source/scripts/check-install.sh" "$@"
mount -t proc proc "$root/proc" && mount --rbind /dev "$root/dev" || exit 1
cp -L /etc/resolv.conf "$root/etc/resolv.conf"

passed=0
failed=0
skipped=0
inRoot() {
  env -i PATH=/usr/local/bin:/usr/bin:/usr/sbin:/bin:/sbin HOME=/root LANG=C.UTF-8 \
    DEBIAN_FRONTEND=noninteractive chroot "$root" bash -euo pipefail -c "$1"
}
# check WHAT COMMANDS: in ROOT.
check() {
  local start=$SECONDS
  if inRoot "$2" >"$root/tmp/check.log" 2>&1; then
    passed=$((passed + 1))
    echo "install: $1: ok, $((SECONDS - start)) s"
  else
    failed=$((failed + 1))
    echo "install: $1 FAILED"
    tail -30 "$root/tmp/check.log"
  fi
}
skip() {
  skipped=$((skipped + 1))
  echo "install: $1: skipped: $2"
}

inRoot 'apt-get -qq update && apt-get -qq -y install --no-install-recommends ca-certificates \
  g++ gcc cmake make pkg-config python3 python3-venv' >"$root/tmp/apt.log" 2>&1 ||
  { tail "$root/tmp/apt.log"; exit 1; }
echo "install: $(inRoot '. /etc/os-release; echo "$PRETTY_NAME"
  for tool in ldd c++ cmake python3; do $tool --version | sed q; done' |
  paste -sd, | sed 's/,/, /g')"
# NumPy for ROOT's Python is fetched out here: ROOT needs no way to it.
python=$(inRoot 'python3 -c "import sys; print(f\"{sys.version_info[0]}.{sys.version_info[1]}\")"')
rm -rf "$root/opt/gpt2c" "$root/opt/python" "$root/opt/wheels" "$root/opt/examples"
mkdir -p "$root/opt/python/gpt2c"
cmake --install "$build" --prefix "$root/opt/gpt2c" >/dev/null || exit 1
cp -r examples "$root/opt/examples"

check "tools" 'export PATH=/opt/gpt2c/bin:$PATH; cd /tmp
  gpt2c /opt/examples/sample/model.onnx -o sample.plan --gpu-arch=none
  gpt2c-run sample.plan --device=cpu --prompt="The river" -n 12 >expected.txt
  [ -s expected.txt ]
  gpt2c-run sample.plan --device=cpu --self-test
  gpt2c-run sample.plan --device=cpu --test-data=/opt/examples/sample/test_data_set_0
  for tool in /opt/gpt2c/bin/*; do
    "$tool" --version
    ldd "$tool" | { ! grep "not found"; }
  done'
check "examples by CMake" 'cd /tmp; rm -rf by-cmake
  cmake -S /opt/gpt2c/share/gpt2c/examples -B by-cmake -DCMAKE_PREFIX_PATH=/opt/gpt2c
  cmake --build by-cmake
  by-cmake/generate sample.plan "The river" cpu 12 | cmp - expected.txt
  by-cmake/sample sample.plan "The river was" cpu
  by-cmake/requests sample.plan cpu 12 "A" "The river"'
check "examples by pkg-config" 'cd /tmp
  lib=$(dirname "$(find /opt/gpt2c -name libgpt2c.so)")
  export PKG_CONFIG_PATH=$lib/pkgconfig
  cc -std=c11 /opt/examples/c-api/generate.c $(pkg-config --cflags --libs gpt2c) -o generate
  LD_LIBRARY_PATH=$lib ./generate sample.plan "The river" cpu 12 | cmp - expected.txt'

text='import gpt2c
llm = gpt2c.from_pretrained("/opt/examples/sample", gpu_arch="none", device="cpu")
params = gpt2c.SamplingParams(temperature=0, max_tokens=12)
assert llm.generate("The river", params)[0].outputs[0].text + "\n" == open("expected.txt").read()
print(gpt2c.Session(llm.plan, "cpu").logits([[1, 2, 3]]).shape)'
printf '%s\n' "$text" >"$root/opt/three-lines.py"
if python3 -m pip download --quiet --disable-pip-version-check --only-binary=:all: \
  --python-version "$python" --dest "$root/opt/wheels" numpy; then
  numpy='rm -rf /tmp/venv; python3 -m venv /tmp/venv
    /tmp/venv/bin/python -m pip install --quiet --no-index --find-links /opt/wheels numpy'
  if [ -n "$wheel" ]; then
    cp "$wheel" "$root/opt/wheels"
    check "wheel" "$numpy"' gpt2c; cd /tmp; /tmp/venv/bin/python /opt/three-lines.py
      /tmp/venv/bin/gpt2c-run sample.plan --device=cpu --prompt="The river" -n 12 |
        cmp - expected.txt'
  elif compgen -G "$build/python/gpt2c/_core.cpython-${python/./}-*.so" >/dev/null; then
    cmake --install "$build" --component python --prefix "$root/opt/python/gpt2c" >/dev/null ||
      exit 1
    cp python/gpt2c/*.py "$root/opt/python/gpt2c"
    check "Python package" "$numpy"'; cd /tmp
      PYTHONPATH=/opt/python /tmp/venv/bin/python /opt/three-lines.py'
  else
    skip "Python package" "$build has none for Python $python; --wheel=FILE gives one"
  fi
else
  skip "Python package" "there is no NumPy for Python $python"
fi

if [ -n "$configure" ]; then
  rm -rf "$root/opt/source"
  mkdir -p "$root/opt/source"
  git archive HEAD | tar -x -C "$root/opt/source"
  cuda=${GPT2C_CUDA_PATH:-/usr/local/cuda}
  [ -d .deps/cuda ] && cuda=$source/.deps/cuda
  if [ -r "$cuda/include/cuda.h" ]; then # what the script would fetch is already here
    mkdir -p "$root/usr/local/cuda"
    mount --bind "$cuda" "$root/usr/local/cuda"
  fi
  check "setup and configuration" 'cd /opt/source; scripts/setup.sh; cmake --preset release'
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
