#!/usr/bin/env bash
# Stages on GPUs: tokens of two on one GPU, and on two where there are two, against one's in fp32,
# and through the engine of a batch-invariant plan in fp16 the same answers; on four GPUs two stages
# of two ranks. Then what one and two stages take: decode steps, a call of 8 prompts, and requests
# through the engine, for the models in $GPT2C_STAGES_MODELS (default: the sample).
set -euo pipefail
source "$GPT2C_SOURCE_DIR/tests/e2e/common/plan.sh"
sample=$GPT2C_SOURCE_DIR/examples/sample/model.onnx
ids=("--ids=285,282,261,3929,3966" "--ids=1344,1328,2290,14,430,460,1579,302,281")
# tokens [FLAG...]
tokens() {
  gpt2c-run single.plan "${ids[@]}" -n 64 --ignore-eos --output=ids "$@" 2>stderr.txt ||
    { cat stderr.txt; exit 1; }
}
# there GPUS: whether this machine has them.
there() { gpt2c-run single.plan --gpus="$1" --pipeline-parallel=2 --ids=3 -n 1 >/dev/null 2>&1; }
# workload PROMPTS LENGTH TOKENS FILE
workload() {
  for ((i = 0; i < $1; ++i)); do
    echo "{\"prompt\": $2, \"max_tokens\": $3}"
  done >"$4"
}
gpuPlan "$sample" single.plan --precision=fp32 --max-batch=8 --tensor-parallel=2
gpuPlan "$sample" half.plan --max-batch=8 --batch-invariant
workload 60 90 20 requests.jsonl
# answers [FLAG...]
answers() {
  gpt2c-bench half.plan --workload=requests.jsonl -o json "$@" 2>stderr.txt >bench.json ||
    { cat stderr.txt; exit 1; }
  grep '"answers"' bench.json
}
tokens --device=cuda >one.txt
answers --device=cuda >one.json
placed=("0,0")
! there 0,1 || placed+=("0,1")
for gpus in "${placed[@]}"; do
  tokens --gpus="$gpus" --pipeline-parallel=2 | diff one.txt -
  tokens --gpus="$gpus" --pipeline-parallel=2 --micro-batch=1 | diff one.txt -
  for rows in 0 7; do
    answers --gpus="$gpus" --pipeline-parallel=2 --micro-batch=$rows | diff one.json -
  done
  echo "stages on $gpus: tokens of one, the same answers"
done
if there 0,1,2,3; then
  tokens --gpus=0,1,2,3 --pipeline-parallel=2 | diff one.txt -
  echo "two stages of two ranks: tokens of one"
fi

models=${GPT2C_STAGES_MODELS:-$sample}
gpus=${placed[-1]}
for model in $models; do
  compilePlan "$model" -o stages.plan --gpu-arch=native --precision=fp16 --max-batch=64 --verify=off
  workload 128 400 1 prompts.jsonl
  workload 256 64 128 chats.jsonl
  for flags in --device=cuda "--gpus=$gpus --pipeline-parallel=2" \
    "--gpus=$gpus --pipeline-parallel=2 --micro-batch=256"; do
    # shellcheck disable=SC2086
    for measured in "-b 1,32 -p 0 -d 400" "-b 8 -p 480 -d 0" \
      "--workload=prompts.jsonl --row-budget=4096" "--workload=chats.jsonl"; do
      echo "$model $flags $measured"
      gpt2c-bench stages.plan $flags $measured -r 5 -o csv 2>stderr.txt ||
        { cat stderr.txt; exit 1; }
    done
  done
done
rm -f ./*.plan
