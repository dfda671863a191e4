#!/usr/bin/env bash
# check-rows.sh FOLDER cpu|cuda: compiles FOLDER/model.onnx for the device in fp32 and fp16, and
# compares calls over rows of several sequences with each sequence alone.
set -uo pipefail
model=$1
device=$2
[ "$device" = cuda ] && arch=native || arch=none
if [ ! -f "$model/model.onnx" ]; then
  echo "skipped: there is no $model/model.onnx (set GPT2C_SHARED_DIR)"
  exit 77
fi
failed=0
for kind in fp32:2e-4 fp16:2e-2; do
  gpt2c "$model/model.onnx" -o rows.plan --precision="${kind%:*}" --gpu-arch=$arch 2>err.txt
  rc=$?
  if [ $rc = 6 ]; then
    echo "skipped: $(grep '^error' err.txt)"
    exit 77
  elif [ $rc != 0 ]; then
    cat err.txt
    exit 1
  fi
  e2e_rows rows.plan "$device" "${kind#*:}" || failed=1
done
rm -f rows.plan
exit $failed
