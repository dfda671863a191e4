#!/usr/bin/env bash
# Models that ONNX Runtime's tools quantised (tests/data/make_quantized.py): what plans compute is
# what ONNX Runtime does. With --imported-activations=all, and at -O0, that is the same but for the
# order of sums; otherwise what the model quantises inside of norms, GELU and attention is not, and
# the difference is that of its rounding.
set -uo pipefail
models=$GPT2C_SOURCE_DIR/tests/data/quantized
failed=0

fail() {
  echo "FAIL: $*"
  failed=1
}

# check MODEL RTOL FLAGS...: logits within RTOL of ONNX Runtime's, and its greedy tokens.
check() {
  local model=$1 rtol=$2 prompt expected
  shift 2
  gpt2c "$models/$model/model.onnx" -o model.plan --gpu-arch=none "$@" 2>remarks.txt ||
    { fail "compile $model $*: $(cat remarks.txt)"; return; }
  gpt2c-run model.plan --device=cpu --test-data="$models/$model/test_data_set_0" --rtol="$rtol" \
    >out.txt 2>&1 ||
    fail "test data of $model $*: $(cat out.txt)"
  [ -f "$models/$model/golden.json" ] || return
  prompt=$(e2e_golden prompt "$models/$model/golden.json")
  expected=$(e2e_golden greedy "$models/$model/golden.json")
  ids=$(gpt2c-run model.plan --device=cpu --ids="$prompt" -n 20 --ignore-eos --output=ids \
    2>/dev/null)
  [ "$ids" = "$expected" ] || fail "greedy tokens of $model $*"
}

for model in dynamic-i8 dynamic-i8-attention dynamic-i8-channels-ort dynamic-i8-past dynamic-u8 \
  dynamic-u8-attention qdq-i8-channels qdq-u8-all qdq-u8-products qoperator-u8-all \
  qoperator-u8-products; do
  check $model 1e-6 --imported-activations=all
  check $model 1e-6 -O0
  case $model in
  dynamic-*)
    check $model 1e-6
    check $model 0.02 --imported-activations=none
    check $model 0.02 --precision=fp16
    ;;
  *-all) # also logits, embeddings and sums
    check $model 0.35
    check $model 0.35 --imported-activations=none --precision=fp16
    ;;
  *)
    check $model 0.04
    check $model 0.04 --imported-activations=none -O1
    check $model 0.04 --precision=fp16
    ;;
  esac
done
exit $failed
