#!/usr/bin/env bash
# gpt2c --calibrate-target on the GPU: numbers that a GPU can have, twice about the same ones, in a
# file that --target takes.
set -euo pipefail
source "$GPT2C_SOURCE_DIR/tests/e2e/common/plan.sh"
sample=$GPT2C_SOURCE_DIR/examples/sample
gpuPlan "$sample/model.onnx" sample.plan
for i in 1 2; do gpt2c --calibrate-target=target$i.json --device=cuda; done
cat target1.json
python3 - <<'PYTHON'
import json
one, two = (json.load(open(f"target{i}.json")) for i in (1, 2))
ranges = {"launch_us": (0.1, 20), "memory_gbps": (50, 20000), "hop_us": (0.3, 20),
          "products_gflops": (100, 50000)}
for name, (low, high) in ranges.items():
    assert low < one[name] < high, (name, one[name])
    assert 0.8 < one[name] / two[name] < 1.25, (name, one[name], two[name])
PYTHON
gpt2c "$sample/model.onnx" -o sample.plan --gpu-arch=native --precision=fp16 --target=target1.json
gpt2c-run sample.plan --device=cuda --ids=285,282,261 -n 5 --output=ids
