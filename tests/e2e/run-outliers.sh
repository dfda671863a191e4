#!/usr/bin/env bash
# The sample model with outliers in its activations: another model that computes the same, bit for
# bit.
set -uo pipefail
sample=$GPT2C_SOURCE_DIR/examples/sample

e2e_outliers "$sample/model.onnx" plain.onnx 1 && e2e_outliers "$sample/model.onnx" hard.onnx 64 ||
  exit 1
if cmp -s plain.onnx hard.onnx; then
  echo "FAIL: the outliers change nothing in the file"
  exit 1
fi
for model in plain hard; do
  gpt2c $model.onnx -o $model.plan --tokenizer="$sample" --gpu-arch=none || exit 1
done
printf '%s' "The river ran past the old house, and in the evening the children went down to look " \
  "at the boats." >short.txt
gpt2c-eval hard.plan --baseline=plain.plan --device=cpu --text=short.txt | tee table.md
grep -q '^| hard.plan | fp32 |.*| +0.0000 | 0.0000 | 0 | 0 | 100.000 | 0 |$' table.md || {
  echo "FAIL: the outliers change what the model computes"
  exit 1
}
if e2e_outliers "$sample/model.onnx" hard.onnx 60 2>error.txt ||
  ! grep -q "SCALE is a power of two" error.txt; then
  echo "FAIL: a scale that rounds is accepted"
  exit 1
fi
rm -f ./*.plan ./*.onnx
