#!/usr/bin/env bash
# Decode in thread block clusters on trained weights: the sample model in 12 heads of 64
# (bench/make-model.py --widen), whose tokens are those of the sample itself on the CPU, in every
# row of batches of one to sixteen.
set -uo pipefail
source "$GPT2C_SOURCE_DIR/tests/e2e/common/plan.sh"
source "$GPT2C_SOURCE_DIR/tests/e2e/need-onnx.bash"
sample=$GPT2C_SOURCE_DIR/examples/sample
stride=12 # of the sample's tokens among the 50257 of the wide model
count=40
failed=0
gpuPlan "$sample/model.onnx" sample.plan
needOnnx

# Pieces of prose. Where the sample continues them, the first choice leads the second by 0.07 of a
# logit or more, which is more than half precision errs.
prompts=(
  "285,282,261,3929,3966"
  "3632,521,477,303,3812,405,2966,1724,650,12,441,221"
  "1344,1328,2290,14,430,460,1579,302,281,1933,583,2253,1805"
  "497,382,395,475,1897,417,689,12,566,1849,283,3681,742,12,441"
  "261,1509,331,259,605,12,285,642,3469,283,1968,744,259,887,416,1153,282,261,2284,457,13,365,576,266,372,1730"
  "285,572,961,507,282,1050,283,351,1009,285,3427,993,281,671,3269,405,671,864,14,199,199,2090,511,439,507,343,259,463,282,980"
  "2279,76,3112,14,411,824,2279,76,3112,864,285,1364,445,738,281,2031,1194,2676,289,261,3370,14,199,199,1074,261,513,910,2987,1668"
  "289,261,740,262,1454,265,283,12,285,306,633,3923,289,259,2131,518,373,3086,281,484,3272,581,281,484,271,3580,12,917,511,439,507,285"
)
wide() { awk -F, -v OFS=, -v s=$stride '{ for (i = 1; i <= NF; ++i) $i *= s; print }'; }
# run PLAN DEVICE PROMPT...: the new tokens of each.
run() {
  local plan=$1 device=$2
  shift 2
  gpt2c-run "$plan" --device="$device" "${@/#/--ids=}" -n $count --ignore-eos --output=ids \
    2>stderr.txt ||
    cat stderr.txt
}
run sample.plan cpu "${prompts[@]}" | wide >expected.txt
mapfile -t prompts < <(printf '%s\n' "${prompts[@]}" | wide)

python3 "$GPT2C_SOURCE_DIR/bench/make-model.py" wide.onnx --widen="$sample/model.onnx" || exit 1
for precision in fp32 fp16; do
  batches=(1 2 3 4 5 6 7 8 9 13 16)
  [ $precision = fp32 ] && batches=(1)
  gpt2c wide.onnx -o wide.plan --gpu-arch=native --precision=$precision \
    --max-batch="${batches[-1]}" || exit 1
  if ! gpt2c-dump --cuda wide.plan | grep -q "decode_step/clusters"; then
    skip "a plan for this GPU decodes without clusters"
  fi
  for batch in "${batches[@]}"; do
    # Each batch begins with another prompt.
    rows=()
    for ((b = 0; b < batch; ++b)); do
      rows+=($(((batch + b) % ${#prompts[@]})))
    done
    these=()
    for row in "${rows[@]}"; do
      these+=("${prompts[row]}")
      sed -n "$((row + 1))p" expected.txt
    done >wanted.txt
    run wide.plan cuda "${these[@]}" >tokens.txt
    if cmp -s tokens.txt wanted.txt; then
      echo "$precision, batch $batch: $count tokens of each equal the sample's"
    else
      echo "FAIL: $precision, batch $batch"
      diff tokens.txt wanted.txt
      failed=1
    fi
  done
done
rm -f ./*.plan wide.onnx
exit $failed
