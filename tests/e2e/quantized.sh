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

# weights MODEL FLAGS...: bytes of the plan's weights by element type.
weights() {
  gpt2c "$1" -o model.plan --gpu-arch=none "${@:2}" 2>remarks.txt ||
    fail "compile $*: $(cat remarks.txt)"
  gpt2c-dump model.plan --json | python3 -c '
import json, sys
bytes = {}
for w in json.load(sys.stdin)["weights"]:
    bytes[w["dtype"]] = bytes.get(w["dtype"], 0) + w["bytes"]
print(*(f"{t}={bytes[t]}" for t in sorted(bytes)))'
}

# Four bits stay four bits: half a byte for each weight of the products.
for model in int4-blocks int4-blocks-padded int4-qdq int4-table; do
  check $model 1e-5
  check $model 1e-5 -O0
  check $model 0.02 --precision=fp16
  case " $(weights "$models/$model/model.onnx")" in
  *" i4="*) ;;
  *) fail "$model has no weights of four bits" ;;
  esac
done
# Tables of tokens are bytes, numbers less their zero points.
case " $(weights "$models/int4-table/model.onnx") " in
*" i8="*) ;;
*) fail "int4-table: $(weights "$models/int4-table/model.onnx")" ;;
esac
field=${GPT2C_SHARED_DIR:-}/field/nbits-4
if [ -d "$field" ]; then
  gpt2c "$field/model.onnx" -o model.plan --gpu-arch=none 2>remarks.txt ||
    fail "compile $field: $(cat remarks.txt)"
  gpt2c-run model.plan --device=cpu --test-data="$field/test_data_set_0" --rtol=1e-5 \
    >out.txt 2>&1 ||
    fail "test data of $field: $(cat out.txt)"
  # 2 layers of 12 * 32 * 32 weights, and 96 * 32 of the logits.
  case " $(weights "$field/model.onnx") " in
  *" i4=13824 "*) ;;
  *) fail "$field: $(weights "$field/model.onnx")" ;;
  esac
else
  echo "skipped: there is no $field (set GPT2C_SHARED_DIR)"
fi
exit $failed
