#!/usr/bin/env bash
# check-model.sh FOLDER cpu|cuda [FLAGS...]: compiles FOLDER/model.onnx for the device, with the
# flags, in each of PRECISIONS (fp32, fp16 and bf16 unless set), and checks what the plans compute,
# with every test_data_set_N and, in fp32, the golden tokens.
set -uo pipefail
. "$GPT2C_SOURCE_DIR/tests/e2e/common/plan.sh"
model=$1
device=$2
flags=("${@:3}")
[ "$device" = cuda ] && arch=${GPT2C_TEST_ARCH:-native} || arch=none
needModel "$model"
if [ "$device" = cuda ]; then
  makePlan "$model" cuda probe.plan
  rm -f probe.plan
fi
failed=0

# run WHAT COMMAND...: its standard error is shown when it fails.
run() {
  local what=$1
  shift
  if ! "$@" 2>stderr.txt; then
    echo "FAIL: $what: $*"
    cat stderr.txt
    failed=1
    return 1
  fi
}

for precision in ${PRECISIONS:-fp32 fp16 bf16}; do
  plan=$precision.plan
  run "compile" gpt2c "$model/model.onnx" -o "$plan" --gpu-arch=$arch --precision=$precision \
    "${flags[@]}" ||
    continue
  for data in "$model"/test_data_set_*; do
    run "test data, $precision" gpt2c-run "$plan" --device=$device --test-data="$data"
  done
done

if [ -f "$model/golden.json" ] && [ -f fp32.plan ]; then
  prompt=$(e2e_golden prompt "$model/golden.json") &&
    expected=$(e2e_golden greedy "$model/golden.json") || exit 1
  count=$(awk -F, '{print NF}' <<<"$expected")
  run "greedy tokens" gpt2c-run fp32.plan --device=$device --ids="$prompt" -n "$count" \
    --ignore-eos --output=ids \
    >tokens.txt
  if [ "$(cat tokens.txt)" != "$expected" ]; then
    echo "FAIL: greedy tokens differ"
    echo "  got      $(cat tokens.txt)"
    echo "  expected $expected"
    failed=1
  else
    echo "greedy tokens: $count of $count equal those of float64"
  fi
fi
rm -f fp32.plan fp16.plan bf16.plan
exit $failed
