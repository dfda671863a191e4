#!/usr/bin/env bash
# ranks.sh MODEL.onnx [whole]: two ranks on one device and on two give the tokens of one in fp32,
# and of prompts of many rows in fp16, whose products send or add sums; a device that does not reach
# another is refused. whole: in fp16 the same tokens wherever they are, too, and requests through
# the engine get those of sessions.
set -euo pipefail
source "$GPT2C_SOURCE_DIR/tests/e2e/common/plan.sh"
export GPT2C_EMULATED_DEVICES=2
prompts=("--ids=3,1,4,1,5,9,2,6" "--ids=2,7")
# tokens DEVICE [FLAG...]
tokens() {
  gpt2c-run ranks.plan --device="$1" "${prompts[@]}" -n "${steps:-4}" --ignore-eos --output=ids \
    "${@:2}" 2>stderr.txt || { cat stderr.txt; exit 1; }
}
for precision in fp32 ${2:+fp16}; do
  compilePlan "$1" -o ranks.plan --gpu-arch="$GPT2C_TEST_ARCH" --precision=$precision \
    --max-batch=2 --tensor-parallel=2 --verify=off
  tokens cuda >one.txt
  tokens cuda:0,0 >shared.txt
  GPT2C_EMULATED_SEED=7 tokens auto --gpus=0,1 >two.txt
  cmp shared.txt two.txt
  [ $precision != fp32 ] || cmp one.txt two.txt
  # Calls of new sizes make graphs, for which the driver waits for kernels.
  e2e_engine ranks.plan cuda:0,0 3
  [ -z "${2:-}" ] || e2e_engine ranks.plan cuda:0,1 6
  echo "$precision: $(tr '\n' ' ' <two.txt)"
done
# As many numbers as are worth sending from within products.
python3 "$GPT2C_SOURCE_DIR/tests/data/random_checkpoint.py" model gpt2 128 2 2 128 1 61 256
compilePlan model -o ranks.plan --gpu-arch="$GPT2C_TEST_ARCH" --precision=fp16 --max-batch=4 \
  --tensor-parallel=2 --decode=graph --verify=off
prompts=() steps=1
for first in 1 2 3 4; do
  prompts+=("--ids=$first$(for i in $(seq 139); do echo -n ",$((first * i * 7 % 60))"; done)")
done
tokens cuda >one.txt
tokens cuda:0,1 >two.txt
gpt2c-dump ranks.plan --steps >steps.txt
grep -q "linear+all_reduce" steps.txt || { echo "FAIL: no product adds sums"; exit 1; }
cmp one.txt two.txt
if GPT2C_EMULATED_PEERS=0 gpt2c-run ranks.plan --gpus=0,1 --ids=3 -n 1 2>stderr.txt; then
  echo "FAIL: GPUs that do not reach each other are ranks"
  exit 1
fi
grep "has no access to the memory of emulated GPU (0000:01:00.0)" stderr.txt
rm -rf ranks.plan model steps.txt
