#!/usr/bin/env bash
# check-soak.sh FOLDER cpu|cuda [GENERATIONS]: compiles FOLDER/model.onnx for the device and lets
# one session make random generations, each compared with a fresh session; memory stays flat.
set -uo pipefail
. "$GPT2C_SOURCE_DIR/tests/e2e/common/plan.sh"
makePlan "$1" "$2" soak.plan --max-batch=4 --verify=off
e2e_soak soak.plan "$2" "${3:-300}"
rc=$?
rm -f soak.plan
exit $rc
