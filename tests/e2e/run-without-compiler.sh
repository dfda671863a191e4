#!/usr/bin/env bash
# The tools that only run plans hold nothing of the compiler, and alone on a machine they run plans
# and say what is missing for the rest.
set -uo pipefail
sample=$GPT2C_SOURCE_DIR/examples/sample
bin=$(dirname "$(command -v gpt2c)")
failed=0

fail() {
  echo "FAIL: $*"
  failed=1
}

# expect CODE TEXT COMMAND...: ends with CODE, and its output holds TEXT (a fixed string).
expect() {
  local code=$1 text=$2 out rc
  shift 2
  out=$("$@" 2>&1 </dev/null)
  rc=$?
  [ $rc = "$code" ] || fail "exit code $rc, expected $code: $*: $out"
  grep -qF -- "$text" <<<"$out" || fail "no '$text' in the output of $*: $out"
}

for tool in gpt2c-run gpt2c-bench gpt2c-eval gpt2c-serve; do
  [ -x "$bin/$tool" ] || [ $tool != gpt2c-serve ] || continue # without Boost
  nm -C "$bin/$tool" >symbols.txt || fail "$tool has no symbols to look at"
  grep -q ' gpt2c::rt::Session' symbols.txt || fail "$tool: no symbols of the runtime"
  grep -E ' (llvm::|google::protobuf|onnx::|nvrtc|gpt2c::(Module|Pass|importOnnx))' symbols.txt |
    head -3 | grep . && fail "$tool holds parts of the compiler"
  readelf -d "$bin/$tool" | grep -E 'NEEDED.*(LLVM|protobuf|onnx|nvrtc|cuda)' &&
    fail "$tool needs a library of the compiler"
done

gpt2c "$sample/model.onnx" -o sample.plan --gpu-arch=none || exit 1
gpt2c-run sample.plan --prompt="The river" -n 12 --device=cpu >expected.txt 2>/dev/null ||
  fail "gpt2c-run"
rm -rf alone
mkdir -p alone/bin alone/lib
cp "$bin"/gpt2c-{run,bench} alone/bin
cp -L "$bin"/../lib/libgpt2c_blas.so alone/lib
expect 6 "the CPU device is in libgpt2c_cpu.so.0" \
  alone/bin/gpt2c-run sample.plan --ids=1 --device=cpu
cp -L "$bin"/../lib/libgpt2c_cpu.so.0 alone/lib
alone/bin/gpt2c-run sample.plan --prompt="The river" -n 12 --device=cpu 2>/dev/null |
  cmp - expected.txt || fail "alone"
(PATH=$PWD/alone/bin:$PATH gpt2c-run sample.plan --prompt="The river" -n 12 --device=cpu) \
  2>/dev/null | cmp - expected.txt || fail "alone, found in PATH"
expect 0 "prefill" alone/bin/gpt2c-bench sample.plan --device=cpu -p 4 -d 4 -n 1 -r 1
expect 2 "--check-against takes the compiler, which is in gpt2c-compare" \
  alone/bin/gpt2c-run sample.plan --check-against="$sample/model.onnx" --device=cpu
expect 2 "--test-data takes the compiler, which is in gpt2c-compare" \
  alone/bin/gpt2c-run sample.plan --test-data="$sample/test_data_set_0" --device=cpu
expect 2 "--ablate takes the compiler, which is in gpt2c-ablate" \
  alone/bin/gpt2c-bench --ablate "$sample/model.onnx" --device=cpu
rm -rf alone sample.plan
exit $failed
