#!/usr/bin/env bash
# check-engine.sh FOLDER cpu|cuda [REQUESTS]: compiles FOLDER/model.onnx for the device in fp32 and
# bf16 and plays random requests through the engine, each compared with the same request alone.
set -uo pipefail
. "$GPT2C_SOURCE_DIR/tests/e2e/common/plan.sh"
for precision in fp32 bf16; do
  makePlan "$1" "$2" engine.plan --precision=$precision
  e2e_engine engine.plan "$2" "${3:-120}" 2>err.txt
  rc=$?
  rm -f engine.plan
  cat err.txt
  [ $rc != 4 ] || skip "$(cat err.txt)"
  [ $rc = 0 ] || exit $rc
done
