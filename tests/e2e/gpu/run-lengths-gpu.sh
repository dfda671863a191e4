#!/usr/bin/env bash
# Prompts of any length on a GPU, where a run takes whole tiles of rows: the sample model continues
# prompts of 1 to 508 tokens, alone and in one batch, as it does on the CPU.
set -uo pipefail
source "$GPT2C_SOURCE_DIR/tests/e2e/common/plan.sh"
sample=$GPT2C_SOURCE_DIR/examples/sample
failed=0
gpuPlan "$sample/model.onnx" sample.plan

# Prose, again and again: a prompt is its first tokens.
prose="3632,521,477,303,3812,405,2966,1724,650,12,441,221,1344,1328,2290,14,430,460,1579,302,281,1933,583,2253,1805,497,382,395,475"
prose="$prose,1897,417,689,12,566,1849,283,3681,742,12,441,261,1509,331,259,605,12,285,642,3469,283,1968,744,259,887,416,1153,282"
prose="$prose,261,2284,457,13,365,576,266,372,1730,285,572,961,507,282,1050,283,351,1009,285,3427,993,281,671,3269,405,671,864,14"
while [ "$(tr -cd , <<<"$prose" | wc -c)" -lt 512 ]; do prose="$prose,$prose"; done
first() { echo "--ids=$(cut -d, -f"1-$1" <<<"$prose")"; }
# run DEVICE LENGTH...: four new tokens of each.
run() {
  local device=$1 prompts=()
  shift
  for length; do prompts+=("$(first "$length")"); done
  gpt2c-run sample.plan --device="$device" "${prompts[@]}" -n 4 --ignore-eos --output=ids \
    2>stderr.txt || { echo "$device:"; cat stderr.txt; }
}
# check LENGTH...: one batch.
check() {
  if [ "$(run cuda "$@")" != "$(run cpu "$@")" ]; then
    echo "FAIL: prompts of $* tokens differ from the CPU's"
    failed=1
  else
    echo "prompts of $* tokens equal the CPU's"
  fi
}
for length in 1 31 32 33 63 64 65 100 127 128 129 200 449 508; do check $length; done
check 1 508
check 5 40 7 33 64 90 12 100
rm -f sample.plan
exit $failed
