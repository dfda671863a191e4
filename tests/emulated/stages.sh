#!/usr/bin/env bash
# stages.sh MODEL.onnx [whole]: two stages on one device and on two give the tokens of one in fp32,
# also in groups of few rows, by prompts and steps and through the engine. whole: two stages of two
# ranks each, too, and of a batch-invariant plan in fp16 the bits of one.
set -euo pipefail
source "$GPT2C_SOURCE_DIR/tests/e2e/common/plan.sh"
export GPT2C_EMULATED_DEVICES=2
prompts=("--ids=3,1,4,1,5,9,2,6" "--ids=2,7")
# tokens [FLAG...]
tokens() {
  gpt2c-run stages.plan "${prompts[@]}" -n 4 --ignore-eos --output=ids "$@" 2>stderr.txt ||
    { cat stderr.txt; exit 1; }
}
printf '%s\n' '{"prompt": 9, "max_tokens": 4}' '{"prompt": 3, "max_tokens": 5}' >requests.jsonl
# answers [FLAG...]: through the engine.
answers() {
  gpt2c-bench stages.plan --workload=requests.jsonl -o json "$@" 2>stderr.txt >bench.json ||
    { cat stderr.txt; exit 1; }
  grep '"answers"' bench.json
}
compilePlan "$1" -o stages.plan --gpu-arch="$GPT2C_TEST_ARCH" --precision=fp32 --max-batch=2 \
  --verify=off ${2:+--tensor-parallel=2}
tokens --device=cuda >one.txt
tokens --gpus=0,0 --pipeline-parallel=2 | diff one.txt -
grep "2 ranks in 2 stages" stderr.txt
GPT2C_EMULATED_SEED=7 tokens --gpus=0,1 --pipeline-parallel=2 --micro-batch=3 | diff one.txt -
answers --device=cuda >one.json
answers --gpus=0,1 --pipeline-parallel=2 --micro-batch=2 | diff one.json -
if [ -n "${2:-}" ]; then
  tokens --gpus=0,0,1,1 --pipeline-parallel=2 | diff one.txt -
  compilePlan "$1" -o stages.plan --gpu-arch="$GPT2C_TEST_ARCH" --precision=fp16 --max-batch=2 \
    --verify=off --batch-invariant
  answers --device=cuda >one.json
  answers --gpus=1,0 --pipeline-parallel=2 --micro-batch=4 | diff one.json -
fi
if gpt2c-run stages.plan --gpus=0,1,0 --pipeline-parallel=2 --ids=3 -n 1 2>stderr.txt; then
  echo "FAIL: three GPUs are two stages"
  exit 1
fi
grep "3 ranks do not stand in 2 stages" stderr.txt
rm -f stages.plan
