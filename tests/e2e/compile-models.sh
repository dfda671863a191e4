#!/usr/bin/env bash
# Every exported model compiles for a GPU as a whole, from model to model in fp16, or at another
# level or in another precision, with GPT2C_NIGHTLY in all of them: no function is left to the CPU
# device, and NVRTC's front end takes each of the kernels. The sample is compiled to the end, by
# night also others. Needs NVRTC, no GPU.
set -uo pipefail
models=${GPT2C_SHARED_DIR:-}/models
. "$GPT2C_SOURCE_DIR/tests/e2e/front-end.bash"
[ -d "$models" ] || skip "there is no $models (set GPT2C_SHARED_DIR)"
failed=0

# compile MODEL FLAGS...: as a whole, or the test fails. Kernels that models share compile once.
compile() {
  local model=$1
  shift
  if ! gpt2c "$model" -o model.plan --gpu-arch=sm_90a --verify=off "$@" >log.txt 2>&1; then
    echo "FAIL: $model $*"
    cat log.txt
    failed=1
  elif grep "CPU device only" log.txt | grep -v "@extend has no kernels"; then
    echo "FAIL: $model $* leaves functions to the CPU"
    failed=1
  fi
}

useFrontEnd
rm -rf kernels
all=(--precision=fp16 "--precision=fp32 -O0" "--precision=fp16 -O0" --precision=fp16
  "--precision=fp16 -O1" --precision=bf16)
turn=0
for model in "$models"/*/*/model.onnx; do
  ways=("${all[turn++ % ${#all[@]}]}")
  [ -z "${GPT2C_NIGHTLY:-}" ] || ways=("${all[@]}")
  for flags in "${ways[@]}"; do
    # shellcheck disable=SC2086
    compile "$model" $flags --kernel-cache=kernels
  done
done
useNvrtc
compile "$models/ours/sample/model.onnx" --precision=fp16
if [ -n "${GPT2C_NIGHTLY:-}" ]; then
  compile "$models/llama/sample/model.onnx" --precision=fp16
  for model in ours/classic-torchscript-opset17 llama/hf5-llama-gqa-past-torchscript-opset17; do
    compile "$models/$model/model.onnx" --precision=bf16
  done
fi
rm -rf model.plan kernels
exit $failed
