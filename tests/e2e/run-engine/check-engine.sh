#!/usr/bin/env bash
# check-engine.sh FOLDER cpu|cuda [REQUESTS]: compiles FOLDER/model.onnx for the device in fp32 and
# bf16, and in fp32 with a KV state in int8, and plays random requests through the engine, each
# compared with the same request alone. In fp8 sums in another order may round an element by a
# sixteenth of it, which no bound of log probabilities tells from a mistake; check-rows.sh has it.
set -uo pipefail
. "$GPT2C_SOURCE_DIR/tests/e2e/common/plan.sh"
for kind in fp32 bf16 fp32:int8; do
  IFS=: read -r precision state <<<"$kind"
  makePlan "$1" "$2" engine.plan --precision="$precision" ${state:+--kv-type="$state"}
  e2e_engine engine.plan "$2" "${3:-120}" 2>err.txt
  rc=$?
  rm -f engine.plan
  cat err.txt
  [ $rc != 4 ] || skip "$(cat err.txt)"
  [ $rc = 0 ] || exit $rc
done
