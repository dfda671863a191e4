#!/usr/bin/env bash
# Every exported model compiles for a GPU as a whole, at every level: no function is left to the CPU
# device. Needs NVRTC, no GPU.
set -uo pipefail
models=${GPT2C_SHARED_DIR:-}/models
[ -d "$models" ] || { echo "skipped: there is no $models (set GPT2C_SHARED_DIR)"; exit 77; }
failed=0

# compile FLAGS...: one model; leaves what gpt2c says in log.txt.
compile() { gpt2c "$model" -o model.plan --gpu-arch=sm_90a "$@" >log.txt 2>&1; }

for model in "$models"/*/*/model.onnx; do
  for flags in --precision=fp16 "--precision=fp32 -O0" "--precision=fp16 -O0" \
    "--precision=fp16 -O1"; do
    # shellcheck disable=SC2086
    if ! compile $flags; then
      if grep -q "no usable NVRTC" log.txt; then
        echo "skipped: $(grep '^error' log.txt)"
        exit 77
      fi
      echo "FAIL: $model $flags"
      cat log.txt
      failed=1
    elif grep "CPU device only" log.txt; then
      echo "FAIL: $model $flags leaves functions to the CPU"
      failed=1
    fi
  done
done
rm -f model.plan
exit $failed
