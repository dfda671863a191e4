#!/usr/bin/env bash
# Ranks on GPUs. The kernels of an exchange; tokens of two ranks on one GPU, and on two where there
# are two, against one's in fp32, and in fp16 the same bits however ranks are placed; then what one
# and two ranks take: prompts, decode steps of one sequence and of 32, for the folders of models in
# $GPT2C_RANKS_MODELS (default: the sample).
set -euo pipefail
source "$GPT2C_SOURCE_DIR/tests/e2e/common/plan.sh"
sample=$GPT2C_SOURCE_DIR/examples/sample/model.onnx
ids=("--ids=285,282,261,3929,3966" "--ids=1344,1328,2290,14,430,460,1579,302,281")
# tokens PLAN [FLAG...]
tokens() {
  gpt2c-run "$1" "${ids[@]}" -n 64 --ignore-eos --output=ids "${@:2}" 2>stderr.txt ||
    { cat stderr.txt; exit 1; }
}
gpuPlan "$sample" single.plan --precision=fp32 --tensor-parallel=2
gpuPlan "$sample" half.plan --tensor-parallel=2
placed=("0,0")
code=0
suite_exchange --devices=0,1 || code=$?
case $code in
0) placed+=("0,1") ;;
77) echo "one GPU: two ranks on it alone" ;;
*) exit 1 ;;
esac
suite_exchange --devices=0,0
tokens single.plan --device=cuda >one.txt
for gpus in "${placed[@]}"; do
  tokens single.plan --gpus="$gpus" | diff one.txt -
  for run in 1 2; do
    tokens half.plan --gpus="$gpus" >"half.$gpus.$run.txt"
    cmp half.0,0.1.txt "half.$gpus.$run.txt"
  done
  e2e_engine half.plan "cuda:$gpus" 200
  echo "ranks on $gpus: tokens of one, the same on every run"
done

# measure PLAN: gpt2c-bench of one GPU and of ranks, beside each other.
measure() {
  for b in 1 32; do
    for flags in --device=cuda "${placed[@]/#/--gpus=}"; do
      echo "$1 $flags, $b sequences"
      gpt2c-bench "$1" "$flags" -b $b -p 512 -d 64 -r 5 -o csv 2>/dev/null ||
        { echo "FAIL: $1 $flags"; exit 1; }
    done
  done
}
models=${GPT2C_RANKS_MODELS:-$sample}
for model in $models; do
  compilePlan "$model" -o ranks.plan --gpu-arch=native --precision=fp16 --max-batch=32 \
    --verify=off --tensor-parallel=2
  compilePlan "$model" -o alone.plan --gpu-arch=native --precision=fp16 --max-batch=32 --verify=off
  echo "$model without divisions"
  gpt2c-bench alone.plan -b 1 -p 512 -d 64 -r 5 -o csv 2>/dev/null
  measure ranks.plan
done
rm -f ./*.plan
