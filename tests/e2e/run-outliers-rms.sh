#!/usr/bin/env bash
# int8 on a decoder with RMS norm and SwiGLU whose activations have outliers: another model that
# computes the same, bit for bit.
set -uo pipefail
folder=$GPT2C_SHARED_DIR/models/llama/hf5-llama-dynamo-opset18
. "$GPT2C_SOURCE_DIR/tests/e2e/common/plan.sh"
needModel "$folder"
fail() {
  echo "FAIL: $*"
  exit 1
}

e2e_outliers "$folder/model.onnx" plain.onnx 1 && e2e_outliers "$folder/model.onnx" hard.onnx 64 ||
  exit 1
cmp -s plain.onnx hard.onnx && fail "the outliers change nothing in the file"

# error_of MODEL FLAGS...: compiles it and prints the relative error of the logits.
error_of() {
  gpt2c "$1.onnx" -o "$1.plan" --gpu-arch=none "${@:2}" 2>error.txt || {
    cat error.txt >&2
    return 1
  }
  # With int8 it is out of tolerance, and the exit code says so.
  { gpt2c-run "$1.plan" --device=cpu --test-data="$folder/test_data_set_0" 2>/dev/null || true; } |
    awk '$1 == "logits" { print $(NF - 1) }'
}
# below A B: both are numbers, and A < B.
below() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a != "" && b != "" && a + 0 < b + 0) }'; }

hard=$(error_of hard) || exit 1
below "$hard" 1e-5 || fail "the outliers change what the model computes: error $hard"

# What int8 loses is what it loses without outliers, where they can move into the weights.
for scheme in w8a16 w8a8-smooth; do
  plain=$(error_of plain --quantize=$scheme) && hard=$(error_of hard --quantize=$scheme) || exit 1
  echo "$scheme: error of the logits $plain, with outliers $hard"
  below "$hard" "$(awk -v e="$plain" 'BEGIN { print 1.5 * e }')" || fail "$scheme loses more"
done

# w8a8 leaves them in the activations: no plan, and the reason.
gpt2c hard.onnx -o w8a8.plan --gpu-arch=none --quantize=w8a8 2>error.txt
rc=$?
[ $rc = 8 ] || fail "w8a8 ends with exit code $rc"
grep -q "^error: int8 loses too much .*: @[a-z]*, a mean KL divergence" error.txt &&
  grep -q -- "--quantize=w8a8-smooth moves outliers" error.txt ||
  fail "the error does not say what is lost: $(cat error.txt)"
[ ! -e w8a8.plan ] || fail "a plan that loses too much was written"
rm -f ./*.plan ./*.onnx
