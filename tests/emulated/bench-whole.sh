#!/usr/bin/env bash
# bench-whole.sh MODEL: gpt2c-bench of a plan without a KV state has the time of its launches, and
# takes runs that do not grow in number with them.
set -euo pipefail
source "$GPT2C_SOURCE_DIR/tests/e2e/common/plan.sh"
compilePlan "$1" -o whole.plan --gpu-arch="$GPT2C_TEST_ARCH" -O0
GPT2C_EMULATED_TRACE=1 gpt2c-bench whole.plan --device=cuda -b 1 -p 4 -r 1 -o json >bench.json \
  2>trace.txt
gpt2c-dump whole.plan --json >whole.json
python3 - <<'PYTHON'
import json
row = json.load(open("bench.json"))["rows"][0]
print(row)
assert row["kind"] == "forward" and 0 < row["device_ms"] and row["bytes"] > 0 and row["flops"] > 0
steps = len(json.load(open("whole.json"))["functions"][0]["steps"])
launches = sum(line.startswith("emulated GPU: ") for line in open("trace.txt"))
print(f"{launches} launches in all of {steps} steps")
assert steps > 50 and steps <= launches < 30 * steps
PYTHON
rm -f whole.plan whole.json bench.json trace.txt
