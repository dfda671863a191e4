#!/usr/bin/env bash
# step-marks.sh: gpt2c-bench --profile has the phases of a decode step in shares that notes them, of
# blocks with heads and of others, and none of one that does not.
set -euo pipefail
source "$GPT2C_SOURCE_DIR/tests/e2e/need-onnx.bash"
source "$GPT2C_SOURCE_DIR/tests/e2e/common/plan.sh"
needOnnx
python3 "$GPT2C_SOURCE_DIR/tests/data/make_llama.py" marks.onnx 128 1 128 256 4 2 96 32 0
for flag in "" --step-marks; do
  compilePlan marks.onnx -o marks.plan --gpu-arch="$GPT2C_TEST_ARCH" --decode=persistent \
    --precision=fp16 --max-batch=1 --verify=off --device=cpu $flag
  gpt2c-bench marks.plan --device=cuda -b 1 -p 0 -d 3 -n 1 -r 1 --profile -o json >marks"$flag".json
done
python3 - <<'PYTHON'
import json
def phases(name):
    return json.load(open(name))["profiles"][0].get("phases", [])
assert not phases("marks.json")
of = phases("marks--step-marks.json")
kinds = {p["blocks"] for p in of}
assert len(kinds) == 2, kinds
for wanted in ("heads_multiplied", "keys_attended", "output_published", "chosen", "output_filled"):
    times = [p for p in of if p["until"] == wanted]
    assert times and all(0 <= p["least_us"] <= p["us"] <= p["most_us"] for p in times), wanted
PYTHON
rm -f marks*
