#!/usr/bin/env bash
# Which form --decode=auto gives the steps of few sequences of a wide layer, 1600 columns: shares of
# clusters, of int8 and of fp16 weights. Needs NVRTC, no GPU.
set -uo pipefail
. "$GPT2C_SOURCE_DIR/tests/e2e/front-end.bash"
. "$GPT2C_SOURCE_DIR/tests/e2e/need-onnx.bash"
needOnnx
useFrontEnd
python3 "$GPT2C_SOURCE_DIR/bench/make-model.py" model.onnx --layers=1 --heads=25 --width=1600 \
  --vocab=97 --context=64 || exit 1
failed=0
# expect ROWS FLAGS...: kernels for one sequence, and for several, @generate and @steps.
expect() {
  local wanted=$1
  shift
  gpt2c model.onnx -o model.plan --gpu-arch=sm_90a --max-batch=8 --precision=fp16 --verify=off \
    "$@" >log.txt 2>&1 || { cat log.txt; exit 1; }
  gpt2c-dump --cuda model.plan >source.txt
  local one several
  one=$(grep -c 'include "templates/decode_step/shares/shares.cuh"' source.txt)
  several=$(grep -c 'include "templates/decode_step/shares/rows.cuh"' source.txt)
  [ "$one $several" = "$wanted" ] && return
  echo "FAIL: $* has $one kernels for one sequence and $several for several, not $wanted"
  failed=1
}
expect "2 2" --quantize=w8a16
expect "2 2"
expect "0 0" --quantize=w8a16 --decode=graph
rm -f model.*
exit $failed
