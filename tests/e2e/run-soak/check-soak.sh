#!/usr/bin/env bash
# check-soak.sh FOLDER cpu|cuda [GENERATIONS]: compiles FOLDER/model.onnx for the device and lets
# one session make random generations, each compared with a fresh session; memory stays flat.
set -uo pipefail
[ "$2" = cuda ] && arch=native || arch=none
gpt2c "$1/model.onnx" -o soak.plan --gpu-arch=$arch --max-batch=4 --verify=off 2>err.txt
rc=$?
if [ $rc = 6 ]; then
  echo "skipped: $(grep '^error' err.txt)"
  exit 77
elif [ $rc != 0 ]; then
  cat err.txt
  exit 1
fi
e2e_soak soak.plan "$2" "${3:-300}"
rc=$?
rm -f soak.plan
exit $rc
