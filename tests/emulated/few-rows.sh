#!/usr/bin/env bash
# A decode step of 32 sequences of a decoder as wide as Llama-3.2-1B, one layer of it, against the
# IR in double precision: products through tiles, norms taken out of their sums by statistics, also
# in front of a gate of 16384 columns.
set -euo pipefail
source "$GPT2C_SOURCE_DIR/tests/e2e/need-onnx.bash"
source "$GPT2C_SOURCE_DIR/tests/e2e/common/plan.sh"
needOnnx
python3 "$GPT2C_SOURCE_DIR/tests/data/make_llama.py" wide.onnx 16 1 2048 8192 32 8 256

# check PRODUCT KERNEL OPTION...: the op and the kernel of every product but the vocabulary
check() {
  local product=$1 kernel=$2
  shift 2
  compilePlan wide.onnx -o wide.plan --gpu-arch="$GPT2C_TEST_ARCH" --precision=fp16 \
    --max-batch=32 --verify=off "$@"
  gpt2c-dump wide.plan --json >wide.json
  python3 - "$product" "$kernel" <<'PYTHON'
import json, sys
product, kernel = sys.argv[1:]
functions = json.load(open("wide.json"))["functions"]
steps = [f["steps"] for f in functions if f["name"] == "decode"][-1]
choices = {s["op"]: s.get("choice", "") for s in steps}
print("\n".join(f"{op}: {choice}" for op, choice in choices.items()))
assert "rms_norm" not in choices, "a norm is a launch"
for op in f"rms_norm+{product}", f"{product}+residual", f"rms_norm+{product}+silu gate":
    rows = [s for s in steps if s["op"] == op and "n=256" not in s["choice_key"]]
    assert rows and all(s["choice"].startswith(kernel + " ") for s in rows), op
PYTHON
  gpt2c-compare wide.plan --device=cuda --function=decode --batch=32 --tokens=3
}
check linear linear_tma
check quantized_linear linear_tma_int8_weights --quantize=w8a16 --weight-group=0 \
  --quantize-include='.*' --widen-weights=never
rm -f wide.onnx wide.plan wide.json
