#!/usr/bin/env bash
# gpt2c-eval on the GPU: what the CPU finds of the same plan, and how far half precision is from
# single.
set -uo pipefail
source "$GPT2C_SOURCE_DIR/tests/e2e/common/plan.sh"
sample=$GPT2C_SOURCE_DIR/examples/sample
failed=0
gpuPlan "$sample/model.onnx" fp32.plan
gpt2c "$sample/model.onnx" -o fp16.plan --gpu-arch=native --precision=fp16 || exit 1

# Some English prose that is in every checkout.
cat "$GPT2C_SOURCE_DIR/README.md" "$GPT2C_SOURCE_DIR/docs/"*.md | head -c 20000 >prose.txt
value() { grep -o "\"$2\": [-0-9.e]*" "$1" | tail -1 | sed 's/.*: //'; }
within() { awk -v v="$1" -v l="$2" 'BEGIN { exit !(v < l && v > -l) }'; }

for device in cpu cuda; do
  gpt2c-eval fp32.plan --device=$device --text=prose.txt -o json >$device.json || exit 1
done
difference=$(awk -v a="$(value cuda.json perplexity)" -v b="$(value cpu.json perplexity)" \
  'BEGIN { print a / b - 1 }')
within "$difference" 1e-5 ||
  { echo "FAIL: the GPU's perplexity is $difference off the CPU's"; failed=1; }

gpt2c-eval fp16.plan --device=cuda --baseline=fp32.plan --text=prose.txt -o json \
  --max-ppl-increase=0.1% \
  --max-kl=0.001 >half.json || { echo "FAIL: half precision: $(cat half.json)"; failed=1; }
within "$(value half.json largest_logit_error)" 1 ||
  { echo "FAIL: half precision: $(cat half.json)"; failed=1; }
rm -f ./*.plan
exit $failed
