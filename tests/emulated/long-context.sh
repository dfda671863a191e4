#!/usr/bin/env bash
# long-context.sh MODEL.onnx [ranks]: a context of four times the device's pages beside short ones,
# whose kernels read the others in host memory, where they lie: the tokens are those of plenty of
# pages. ranks: the same on two devices.
set -euo pipefail
source "$GPT2C_SOURCE_DIR/tests/e2e/common/plan.sh"
kind=(--batch-invariant) device=(--device=cuda)
if [ "${2:-}" = ranks ]; then
  export GPT2C_EMULATED_DEVICES=2
  kind=(--tensor-parallel=2) device=(--gpus=0,1 --rank-silence=20)
fi
compilePlan "$1" -o long.plan --gpu-arch="$GPT2C_TEST_ARCH" --precision=fp32 --verify=off \
  --max-context=512 --max-batch=2 "${kind[@]}"
for i in 1 2 3; do echo "{\"prompt\": $((10 * i)), \"max_tokens\": 6}"; done >long.jsonl
echo '{"prompt": 490, "max_tokens": 12}' >>long.jsonl
play() { gpt2c-bench long.plan "${device[@]}" --workload=long.jsonl --rate=inf -o json "$@"; }
number() { python3 -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1]])' "$1"; }
play >plenty.json
[ "$(number completed <plenty.json)" = 4 ]
play --host-pages=1 --kv-cache-bytes=1 2>&1 | grep -o 'one takes [0-9]*' >page.txt || true
page=$(grep -o '[0-9]*' page.txt)
few() { play --kv-cache-bytes=$((2 * page)) --host-pages=20 --check-host-pages; }
# Host memory that is mapped behind the device's, and managed memory where no driver maps it.
for maps in 2 1; do
  GPT2C_EMULATED_MAPS=$maps few >few.json
  [ "$(number answers <few.json)" = "$(number answers <plenty.json)" ]
  [ "$(number pages_read <few.json)" -gt 50 ]
  [ "${2:-}" != ranks ] || exit 0
done
GPT2C_EMULATED_MAPS=0 few >few.json
[ "$(number completed <few.json)" = 3 ]
number first_problem <few.json | grep -q 'does not read the 20 in host memory where they are (cuMem'
rm -f long.plan
