#!/usr/bin/env bash
# check-engine.sh FOLDER cpu|cuda [REQUESTS]: compiles FOLDER/model.onnx for the device in fp32 and
# plays random requests through the engine, each compared with the same request alone.
set -uo pipefail
model=$1
device=$2
[ "$device" = cuda ] && arch=native || arch=none
if [ ! -f "$model/model.onnx" ]; then
  echo "skipped: there is no $model/model.onnx (set GPT2C_SHARED_DIR)"
  exit 77
fi
gpt2c "$model/model.onnx" -o engine.plan --precision=fp32 --gpu-arch=$arch 2>err.txt
rc=$?
if [ $rc = 6 ]; then
  echo "skipped: $(grep '^error' err.txt)"
  exit 77
elif [ $rc != 0 ]; then
  cat err.txt
  exit 1
fi
e2e_engine engine.plan "$device" "${3:-120}" 2>err.txt
rc=$?
rm -f engine.plan
cat err.txt
if [ $rc = 4 ]; then
  echo "skipped: $(cat err.txt)"
  exit 77
fi
exit $rc
