#!/usr/bin/env bash
# Weights of bf16 in 12 bits: a GPT and a Llama with exceptions, one sequence and several, over the
# state of a session and in pages. Plan by plan the logits are those of bf16, bit for bit.
set -euo pipefail
source "$GPT2C_SOURCE_DIR/tests/e2e/need-onnx.bash"
source "$GPT2C_SOURCE_DIR/tests/e2e/common/plan.sh"
needOnnx

# A large element and a tiny one in a row's first group, one in another row's.
cat >exceptions.py <<'PYTHON'
import sys
import numpy, onnx
from onnx import numpy_helper
model = onnx.load(sys.argv[1])
changed = 0
for t in model.graph.initializer:
    w = numpy_helper.to_array(t).copy()
    if w.ndim == 2 and min(w.shape) >= 128 and w.dtype == numpy.float32:
        w[0, 5] = w[5, 0] = 24
        w[0, 9] = w[9, 0] = -3e-21
        t.CopyFrom(numpy_helper.from_array(w, t.name))
        changed += 1
assert changed > 3
onnx.save(model, sys.argv[1])
PYTHON
ids=(--ids=5,11,3 --ids=7,2,9,4,1,8,30,22,17 --ids=40)
run() { # DEVICE PLAN COUNT: tokens and their probabilities
  gpt2c-run "$2" --device="$1" "${ids[@]:0:$3}" -n 2 --ignore-eos --output=json --logprobs=20 |
    python3 -c 'import json, sys
for s in json.load(sys.stdin)["sequences"]: print(s["ids"], *s["logprobs"], sep="\n")'
}
# check NAME HEADER COUNT OPTION...: of so many sequences.
check() {
  local name=$1 header=$2 count=$3
  shift 3
  echo "$name, $count sequences $*"
  for form in plain packed; do
    local compress=none
    [ $form = packed ] && compress='lossless --packed-steps'
    # shellcheck disable=SC2086
    compilePlan "$name.onnx" -o $form.plan --gpu-arch="$GPT2C_TEST_ARCH" --precision=bf16 \
      --decode=persistent --max-batch=4 --verify=off --compress-weights=$compress "$@"
    gpt2c-dump --cuda $form.plan >$form.cuda
    grep "decode_step/$header" $form.cuda >/dev/null || { echo "FAIL: no $header"; exit 1; }
    run cuda $form.plan "$count" >$form.json
    run cpu $form.plan "$count" >$form.cpu.json
  done
  for part in 'Packed=\*/true' 'PackedLast=\*/true'; do
    grep "$part" packed.cuda >/dev/null || { echo "FAIL: no $part"; exit 1; }
  done
  ! grep 'Packed=\*/true' plain.cuda || { echo "FAIL: bf16 is packed"; exit 1; }
  diff plain.json packed.json
  diff plain.cpu.json packed.cpu.json
  python3 - plain.plan packed.plan <<'PYTHON'
import os, sys
plain, packed = map(os.path.getsize, sys.argv[1:])
print(f"  {plain} and {packed} bytes")
PYTHON
}
python3 "$GPT2C_SOURCE_DIR/bench/make-model.py" gpt.onnx --layers=1 --heads=8 --width=512 \
  --vocab=203 --context=64
# Layers, width, MLP, heads, heads of keys, vocabulary.
python3 "$GPT2C_SOURCE_DIR/tests/data/make_llama.py" llama.onnx 64 1 512 2048 8 2 160
for name in gpt llama; do
  python3 exceptions.py $name.onnx
  check $name shares/shares.cuh 1
  check $name shares/rows.cuh 3
done
rm -f ./*.onnx ./*.plan ./*.cuda ./*.json exceptions.py
