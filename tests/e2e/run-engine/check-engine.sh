#!/usr/bin/env bash
# check-engine.sh FOLDER cpu|cuda [REQUESTS]: compiles FOLDER/model.onnx for the device in fp32 and
# bf16 and plays random requests through the engine, each compared with the same request alone.
set -uo pipefail
. "$(dirname "$0")/../common/plan.sh"
for precision in fp32 bf16; do
  makePlan "$1" "$2" engine.plan --precision=$precision
  e2e_engine engine.plan "$2" "${3:-120}" 2>err.txt
  rc=$?
  rm -f engine.plan
  cat err.txt
  if [ $rc = 4 ]; then
    echo "skipped: $(cat err.txt)"
    exit 77
  fi
  [ $rc = 0 ] || exit $rc
done
