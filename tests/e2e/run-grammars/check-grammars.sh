#!/usr/bin/env bash
# check-grammars.sh FOLDER cpu|cuda SCHEMAS [SEED]: compiles FOLDER/model.onnx for the device and
# has it answer by random schemas.
set -uo pipefail
. "$GPT2C_SOURCE_DIR/tests/e2e/common/plan.sh"
makePlan "$1" "$2" grammars.plan
e2e_grammars grammars.plan "$2" "${@:3}" 2>err.txt
rc=$?
rm -f grammars.plan
cat err.txt
[ $rc != 4 ] || skip "$(cat err.txt)"
exit $rc
