#!/usr/bin/env bash
# host-pages.sh MODEL.onnx: three sequences take turns on pages for two of their beginnings; what
# they left comes back from host memory, and their tokens are those of plenty of pages.
set -euo pipefail
source "$GPT2C_SOURCE_DIR/tests/e2e/common/plan.sh"
compilePlan "$1" -o turns.plan --gpu-arch="$GPT2C_TEST_ARCH" --precision=fp16 --batch-invariant \
  --verify=off
for first in 3 5 7; do
  echo "{\"prompt\": [$first$(printf ', 2%.0s' {1..61})], \"max_tokens\": 5}"
done >turns.jsonl
play() { gpt2c-bench turns.plan --device=cuda --workload=turns.jsonl --rate=inf -o json "$@"; }
number() { python3 -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1]])' "$1"; }
play >plenty.json
[ "$(number completed <plenty.json)" = 3 ]
# A page of 64 tokens: of a request that takes two.
play --host-pages=1 --kv-cache-bytes=1 2>&1 | grep -o 'one takes [0-9]*' >page.txt || true
page=$(grep -o '[0-9]*' page.txt)
play --kv-cache-bytes=$((2 * page)) --host-pages=8 --turn-tokens=1 --check-host-pages >turns.json
[ "$(number answers <turns.json)" = "$(number answers <plenty.json)" ]
[ "$(number pages_in <turns.json)" -gt 0 ]
rm -f turns.plan
