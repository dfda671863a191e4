#!/usr/bin/env bash
# Decode steps as one kernel with weights of few bits in groups: GPTs and Llamas of int4, of int8 in
# groups, of fp8 in blocks, and of floats with a vocabulary in int8; one sequence and several, over
# the state of a session and in pages, against the same plan on the CPU device.
set -euo pipefail
source "$GPT2C_SOURCE_DIR/tests/e2e/need-onnx.bash"
source "$GPT2C_SOURCE_DIR/tests/e2e/common/plan.sh"
needOnnx

cat >agree.py <<'PYTHON'
import json, sys
cpu, gpu = (json.load(open(name))["sequences"] for name in sys.argv[1:3])
compared = 0
for s, (p, q) in enumerate(zip(cpu, gpu)):
    for i, (x, y) in enumerate(zip(p["logprobs"], q["logprobs"])):
        top = {t["id"]: t["logprob"] for t in x["top"]}
        if y["id"] not in top or abs(top[y["id"]] - y["logprob"]) > 0.02:
            sys.exit(f"sequence {s}, token {i}: {x} on the CPU, {y}")
        compared += 1
        if x["id"] != y["id"]:
            break
print(f"  {compared} tokens of {len(cpu)} sequences")
if compared < 2 * len(cpu):
    sys.exit("too few were compared")
PYTHON
ids=(--ids=5,11,3 --ids=7,2,9,4,1,8,30,22,17 --ids=40)
# check NAME HEADER OPTION...: the plan of NAME.onnx has a kernel that includes the header.
check() {
  local name=$1 header=$2
  shift 2
  echo "$name $*"
  compilePlan "$name.onnx" -o few.plan --gpu-arch="$GPT2C_TEST_ARCH" --precision=fp16 \
    --decode=persistent --max-batch=4 --verify=off --device=cpu --calibration-tokens=64 "$@"
  gpt2c-dump --cuda few.plan >few.cuda
  for part in "decode_step/$header" "${wanted:-WeightGroup=\*/}"; do
    grep "$part" few.cuda >/dev/null || { echo "FAIL: no $part"; exit 1; }
  done
  for count in 1 3; do
    for device in cpu cuda; do
      gpt2c-run few.plan --device=$device "${ids[@]:0:$count}" -n 3 --ignore-eos --output=json \
        --logprobs=5 >$device.json
    done
    python3 agree.py cpu.json cuda.json
  done
}
python3 "$GPT2C_SOURCE_DIR/bench/make-model.py" gpt.onnx --layers=1 --heads=4 --width=256 \
  --vocab=203 --context=64
# Layers, width, MLP, heads, heads of keys, vocabulary.
python3 "$GPT2C_SOURCE_DIR/tests/data/make_llama.py" llama.onnx 64 1 256 704 4 2 160
# The MLP's second product has groups of 64.
wanted='WeightGroup=\*/64' check llama shares/shares.cuh --quantize=w4a16
wanted='WeightGroup=\*/128' check gpt shares/rows.cuh --quantize=w4a16
wanted='WeightGroup=\*/32' check gpt shares/shares.cuh --quantize=w4a16 --weight-group=32
wanted='LastGroup=\*/32' check llama shares/rows.cuh --quantize=w8a16 --weight-group=32 \
  --quantize-include='.*'
wanted='WeightGroup=\*/64' check llama shares/shares.cuh --quantize=fp8-block
wanted='Last=\*/persistent::Element::I8' check llama shares/shares.cuh --quantize=w8a16 \
  --quantize-exclude='^0'
rm -f ./*.onnx few.* cpu.json cuda.json agree.py
