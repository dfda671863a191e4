#!/usr/bin/env bash
# bench/stream-cost.sh PLAN [DEVICE [ROUNDS]]: what streaming costs. A step of gpt2c-run, which
# shows each token's text as it comes, beside a step of gpt2c-bench, which decodes and shows
# nothing: one sequence, tools from PATH, the least of ROUNDS (default 5) each, in turn.
set -euo pipefail
plan=$1
device=${2:-cuda}
rounds=${3:-5}
context=$(gpt2c-dump "$plan" | sed -n 's/^KV state.*context \([0-9]*\).*/\1/p')
new=$(((context < 513 ? context : 513) - 1))
bare=()
streamed=()
for _ in $(seq "$rounds"); do
  bare+=("$(gpt2c-bench "$plan" --device="$device" -b 1 -p 1 -d 1 -n $((new - 1)) -r 1 -o csv |
    awk -F, '$1 == "kind" { for (i = 1; i <= NF; ++i) if ($i == "ms") c = i }
      $1 == "decode" { print $c }')")
  streamed+=("$(gpt2c-run "$plan" --device="$device" --ids=1 -n "$new" --ignore-eos 2>&1 \
    >/dev/null | sed -n 's/.*(\([0-9.]*\) ms a step).*/\1/p')")
done
least() { printf '%s\n' "$@" | sort -g | head -1; }
awk -v b="$(least "${bare[@]}")" -v s="$(least "${streamed[@]}")" -v n="$new" 'BEGIN {
  printf "a step, mean of %d: %.4f ms bare, %.4f ms streamed: ", n, b, s
  printf "%+.1f %%\n", 100 * (s / b - 1)
}'
