#!/usr/bin/env bash
# ranks-step.sh [whole]: decode steps of ranks that are one kernel on each, of one sequence and of
# several, with the tokens of the CPU on two devices, and in another order on one; and a rank that
# does not come to a step. whole: heads that turn, are normed and share keys, int8 weights, three
# ranks, and requests through the engine.
set -euo pipefail
source "$GPT2C_SOURCE_DIR/tests/e2e/common/plan.sh"
export GPT2C_EMULATED_DEVICES=3
several=("--ids=3,1,4,1,5" "--ids=2,7" "--ids=6")

# tokens DEVICE PROMPT...
tokens() {
  gpt2c-run step.plan --device="$1" "${@:2}" -n 4 --ignore-eos --output=ids --rank-silence=20 \
    2>stderr.txt || { cat stderr.txt >&2; exit 1; }
}
# check RANKS KIND SIZES... [-- OPTION...]: a model of random_checkpoint.py
check() {
  local ranks=$1 sizes=()
  shift
  while [ $# != 0 ] && [ "$1" != -- ]; do sizes+=("$1") && shift; done
  python3 "$GPT2C_SOURCE_DIR/tests/data/random_checkpoint.py" model "${sizes[@]}"
  compilePlan model -o step.plan --gpu-arch="$GPT2C_TEST_ARCH" --precision=fp16 --max-batch=3 \
    --tensor-parallel="$ranks" --decode=persistent --verify=off "${@:2}"
  gpt2c-dump step.plan >dump.txt
  # Of one sequence and of several, with a state as a whole and in pages.
  for function in generate steps; do
    [ "$(grep -c "^  $function: .* as one of $ranks ranks" dump.txt)" -ge 2 ] ||
      { cat dump.txt; echo "FAIL: no @$function of ranks is one kernel"; exit 1; }
  done
  local all=0,1,2 shared=0,0,0
  for prompts in "${several[0]}" "${several[*]}"; do
    # shellcheck disable=SC2086
    tokens cpu $prompts >cpu.txt
    # shellcheck disable=SC2086
    tokens "cuda:${all:0:2*ranks-1}" $prompts >apart.txt
    cmp cpu.txt apart.txt
    if [ -n "$whole" ]; then
      # shellcheck disable=SC2086
      GPT2C_EMULATED_SEED=7 tokens "cuda:${shared:0:2*ranks-1}" $prompts >together.txt
      cmp apart.txt together.txt
    fi
    [ "$(tr ',' '\n' <apart.txt | sort -u | wc -l)" -ge 4 ] ||
      { echo "FAIL: tokens are all the same"; exit 1; }
    echo "$ranks ranks, $*: $(tr '\n' ' ' <apart.txt)"
  done
}
whole=${1:-}
check 2 gpt2 64 4 4 64 2 61 32
lost_step step.plan 0,1
if [ -n "$whole" ]; then
  e2e_engine step.plan cuda:0,1 8
  check 2 qwen3 64 4 2 64 2 67 64
  check 2 qwen3 128 4 2 128 2 67 32 -- --quantize=w8a16 --weight-group=0 --quantize-include='.*'
  check 3 gpt2 192 3 3 96 2 61 32
fi
rm -rf model step.plan
