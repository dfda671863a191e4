#!/usr/bin/env bash
# Plans in int8 compile for a GPU as a whole, for Hopper alone and for it beside an earlier
# architecture, which have kernels of their own: no function is left to the CPU device, no version
# takes floats in the place of int8, and NVRTC's front end takes each of the kernels; with
# GPT2C_NIGHTLY those of w8a8 for Hopper are compiled to the end. Needs NVRTC, no GPU.
set -uo pipefail
. "$GPT2C_SOURCE_DIR/tests/e2e/front-end.bash"
sample=$GPT2C_SOURCE_DIR/examples/sample/model.onnx
failed=0

# compile ARCHS FLAGS...: the sample as a whole, or the test fails.
compile() {
  local archs=$1
  shift
  if ! gpt2c "$sample" -o model.plan --precision=fp16 --max-batch=128 --gpu-arch="$archs" \
    --verify=off --widen-weights=never "$@" >log.txt 2>&1; then
    echo "FAIL: $archs $*"
    cat log.txt
    failed=1
  elif grep "CPU device only" log.txt; then
    echo "FAIL: $archs $* leaves functions to the CPU"
    failed=1
  fi
}

useFrontEnd
rm -rf kernels
for archs in sm_90a sm_80,sm_90a; do
  compile $archs --quantize=w8a16 --kv-type=int8 --kernel-cache=kernels
  compile $archs --quantize=w8a8 --kernel-cache=kernels
  # 32 tokens keep their activations, 33 do not.
  for case in 32:0 33:1; do
    symbols=batch=1,slots=1,seq=${case%:*}
    quantised=$(gpt2c-dump model.plan --steps --function=prefill --symbols="$symbols" |
      grep -c "+quantize ")
    if [ $((quantised > 0)) != "${case#*:}" ]; then
      echo "FAIL: $archs quantises in $quantised launches for ${case%:*} tokens"
      failed=1
    fi
  done
done
if [ -n "${GPT2C_NIGHTLY:-}" ]; then
  useNvrtc
  compile sm_90a --quantize=w8a8
fi
rm -rf model.plan kernels
exit $failed
