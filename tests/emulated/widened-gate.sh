#!/usr/bin/env bash
# Int8 weights of more than 512 rows, which become halves first, with a gate behind the product in
# its epilogue, against the IR in double precision.
set -euo pipefail
source "$GPT2C_SOURCE_DIR/tests/e2e/need-onnx.bash"
source "$GPT2C_SOURCE_DIR/tests/e2e/common/plan.sh"
needOnnx
python3 "$GPT2C_SOURCE_DIR/tests/data/make_llama.py" gated.onnx 64 2 256 704 8 2 300
compilePlan gated.onnx -o gated.plan --gpu-arch="$GPT2C_TEST_ARCH" --precision=fp16 \
  --max-batch=16 --verify=off --quantize=w8a16 --weight-group=0 --quantize-include='.*' \
  --widen-weights=never
gpt2c-dump gated.plan --steps --function=prefill --symbols=batch=14,seq=40,slots=16 >steps.txt
grep -A1 " dequantize " steps.txt | grep " quantized_linear+silu gate .* linear_tma" || {
  cat steps.txt
  echo "FAIL: no gate behind a dequantize"
  exit 1
}
gpt2c-compare gated.plan --device=cuda --function=prefill --batch=14 --tokens=40
rm -f gated.onnx gated.plan steps.txt
