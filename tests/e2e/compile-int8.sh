#!/usr/bin/env bash
# Plans in int8 compile for a GPU as a whole, for Hopper alone and for it beside an earlier
# architecture, which have kernels of their own: no function is left to the CPU device. Needs NVRTC,
# no GPU.
set -uo pipefail
failed=0
for arch in sm_90a sm_80,sm_90a; do
  for flags in "--quantize=w8a8" "--quantize=w8a16 --kv-type=int8"; do
    # shellcheck disable=SC2086
    if ! gpt2c "$GPT2C_SOURCE_DIR/examples/sample/model.onnx" -o model.plan --precision=fp16 \
      --max-batch=128 \
      --gpu-arch=$arch $flags >log.txt 2>&1; then
      if grep -q "no usable NVRTC" log.txt; then
        echo "skipped: $(grep '^error' log.txt)"
        exit 77
      fi
      echo "FAIL: $arch $flags"
      cat log.txt
      failed=1
    elif grep "CPU device only" log.txt; then
      echo "FAIL: $arch $flags leaves functions to the CPU"
      failed=1
    elif [[ $flags == *w8a8* ]]; then
      # 32 tokens keep their activations, 33 do not.
      for case in 32:0 33:1; do
        symbols=batch=1,slots=1,seq=${case%:*}
        quantised=$(gpt2c-dump model.plan --steps --function=prefill --symbols="$symbols" |
          grep -c "+quantize ")
        if [ $((quantised > 0)) != "${case#*:}" ]; then
          echo "FAIL: $arch $flags quantises in $quantised launches for ${case%:*} tokens"
          failed=1
        fi
      done
    fi
  done
done
rm -f model.plan
exit $failed
