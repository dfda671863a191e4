#!/usr/bin/env bash
# Decoders with unusual ports, positions, activations and norms (tests/data/make_variants.py): plans
# compute what ONNX Runtime does at every level, and generate its tokens; those that can have a KV
# state have one, the others say why not.
set -uo pipefail
models=$GPT2C_SOURCE_DIR/tests/data/variants
failed=0

fail() {
  echo "FAIL: $*"
  failed=1
}

generate() {
  gpt2c-run model.plan --device=cpu "$@" -n 8 --ignore-eos --output=ids 2>out.txt
}

# check MODEL STATE REMARK: STATE is kv or whole; REMARK is in what --remarks prints.
check() {
  local model=$1 state=$2 remark=$3 flags
  for flags in "" -O1 -O0; do
    # shellcheck disable=SC2086
    gpt2c "$models/$model/model.onnx" -o model.plan --gpu-arch=none --remarks $flags \
      >report.txt 2>remarks.txt || { fail "compile $model $flags: $(cat remarks.txt)"; continue; }
    gpt2c-run model.plan --device=cpu --test-data="$models/$model/test_data_set_0" \
      >out.txt 2>&1 || fail "test data of $model $flags: $(cat out.txt)"
    # Whole, the graph has no causal mask of its own, and inputs of all kinds.
    case $flags$model in
    *-O0mask-* | *-O0logits-to-* | *-O0temp* | *-O0past-* | *-O0cache-* | *-O0loss-*) continue ;;
    esac
    [ "$(generate --ids=3,1,4,1,5)" = "$(cat "$models/$model/greedy.txt")" ] ||
      fail "greedy tokens of $model $flags: $(cat out.txt)"
    if [ -z "$flags" ] && [ -n "$remark" ]; then
      grep -qF -- "$remark" remarks.txt ||
        fail "remark of $model: '$remark' is not in $(cat remarks.txt)"
    fi
    [ "$flags" = -O0 ] && continue
    gpt2c-dump model.plan --ir >model.ir 2>/dev/null
    if grep -q '@decode(' model.ir; then
      [ $state = kv ] || fail "$model $flags has a KV state"
    else
      [ $state = whole ] || fail "$model $flags has no KV state: $(cat remarks.txt)"
    fi
  done
}

check plain kv ""
check gelu-clipped kv "/Clip"
check norm-clipped kv "/Clip"
check positions-modulo whole "token 8 has 0"
check positions-capped whole "token 9 has 8"
check positions-swapped whole "token 11 has 12"
check positions-late whole "has 3"
check positions-given kv ""
check positions-given-clipped whole "token 10 has 9"
check token-types kv "token types are zeros where 'token_type_ids' is not given"
check token-types-and-positions kv "token types are zeros"
check positions-added kv "token types are zeros"
check hidden-as-wide kv ""
check input-called-positions kv ""
check ids-remapped kv ""
check second-table kv ""
check output-called-kv kv ""
check last-logits kv ""
check last-logits-matrix kv ""
check mask-added kv "under a causal mask in the place of the input 'attention_mask'"
check mask-chosen kv "under a causal mask in the place of the input 'attention_mask'"
check mask-inverted kv "under a causal mask in the place of the input 'attention_mask'"
check mask-of-keys kv "with every key of a sequence in the place of the input 'attention_mask'"
check logits-to-keep kv "text is generated with 1 for the input 'num_logits_to_keep'"
check logits-to-keep-scalar kv "text is generated with 1 for the input 'logits_to_keep'"
check temperature kv "text is generated with 1 for the input 'temperature'"
check past-length kv "with the number of tokens before for the input 'past_length'"
check cache-position kv "with positions that count for the input 'cache_position'"
check loss-beside kv "the output 'loss' reads inputs that logits do not"
check probabilities-by-logarithms kv "the output 'logits' holds probabilities"
check batch-of-one kv "the export has a batch of 1"

# What takes one sequence takes two one after the other.
compile() { gpt2c "$models/$1/model.onnx" -o model.plan --gpu-arch=none >log.txt 2>&1; }
compile batch-of-one || fail "compile batch-of-one: $(cat log.txt)"
generate --ids=2 >one.txt
generate --ids=3,1,4,1,5 --ids=2 >both.txt
cat "$models/batch-of-one/greedy.txt" one.txt | cmp -s - both.txt ||
  fail "two prompts for a batch of one: $(cat both.txt out.txt)"

# Prompts of different lengths, each with its own last token.
compile last-logits || fail "compile last-logits: $(cat log.txt)"
generate --ids=2 >one.txt
generate --ids=3,1,4,1,5 --ids=2 >both.txt
cat "$models/last-logits/greedy.txt" one.txt | cmp -s - both.txt ||
  fail "a batch of last-logits: $(cat both.txt out.txt)"

# Perplexity needs the logits of every token.
seq 1 12 | paste -sd, >text.ids
gpt2c-eval model.plan --device=cpu --text=text.ids >out.txt 2>&1
[ $? = 4 ] || fail "eval of last-logits: exit code, $(cat out.txt)"
grep -q "not one row for each token" out.txt || fail "eval of last-logits: $(cat out.txt)"
exit $failed
