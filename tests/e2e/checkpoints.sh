#!/usr/bin/env bash
# Folders of checkpoints (tests/data/make_checkpoints.py): their plans give transformers' logits and
# greedy tokens, in every precision, and those of their export's plan; and each kind of folder that
# is none ends with its code.
set -uo pipefail
folders=$GPT2C_SOURCE_DIR/tests/data/checkpoints
failed=0

fail() {
  echo "FAIL: $*"
  failed=1
}

greedy() { # PLAN GOLDEN
  gpt2c-run "$1" --device=cpu --ids="$(e2e_golden prompt "$2")" -n 20 --ignore-eos --output=ids \
    2>/dev/null
}

# check FOLDER RTOL FLAGS...
check() {
  local folder=$folders/$1 rtol=$2
  shift 2
  gpt2c "$folder" -o own.plan --gpu-arch=none "$@" 2>log.txt ||
    { fail "compile $folder $*: $(cat log.txt)"; return; }
  gpt2c-run own.plan --device=cpu --test-data="$folder/test_data_set_0" --rtol="$rtol" \
    >out.txt 2>&1 || fail "test data of $folder $*: $(cat out.txt)"
}

for name in gpt2 llama gemma3; do
  check $name 2e-6
  tokens=$(greedy own.plan "$folders/$name/golden.json")
  [ "$tokens" = "$(e2e_golden greedy "$folders/$name/golden.json")" ] || fail "tokens of $name"
  gpt2c "$folders/$name/export/model.onnx" -o export.plan --gpu-arch=none 2>log.txt ||
    fail "export of $name: $(cat log.txt)"
  [ "$tokens" = "$(greedy export.plan "$folders/$name/golden.json")" ] || fail "export of $name"
  gpt2c-run own.plan --device=cpu --check-against="$folders/$name" >out.txt 2>&1 ||
    fail "check of $name: $(cat out.txt)"
done
check llama3-tied 2e-6
check llama3-tied 0.02 --precision=bf16
check llama3-tied 0.005 --precision=fp16
check gpt2-untied 2e-6
check gpt2-untied 0.005 --precision=fp16

# Weights of a few bits (tests/data/make_packed.py) give the tokens of the floats they stand for.
packed=$GPT2C_SOURCE_DIR/tests/data/packed
greedyOf() { # FOLDER
  gpt2c "$1" -o packed.plan --gpu-arch=none 2>log.txt || fail "compile $1: $(cat log.txt)"
  gpt2c-run packed.plan --device=cpu --ids=3,1,4,1,5 -n 20 --ignore-eos --output=ids 2>/dev/null
}
for name in gptq gptq-order gptq-8 awq; do
  tokens=$(greedyOf "$packed/$name")
  [ -n "$tokens" ] && [ "$tokens" = "$(greedyOf "$packed/$name/wide")" ] || fail "tokens of $name"
done

# expect CODE TEXT: of the folder ./broken
expect() {
  gpt2c broken -o own.plan --gpu-arch=none 2>log.txt
  local code=$?
  [ $code = "$1" ] && grep -q "$2" log.txt || fail "code $code, not $1 with '$2': $(cat log.txt)"
}

rm -rf broken
mkdir broken
expect 2 "neither model.onnx nor config.json"
cp "$folders/llama/config.json" broken
expect 2 "no weights"
head -c 1000 "$folders/llama/model.safetensors" >broken/model.safetensors
expect 3 "cut short"
cp "$folders/gpt2/model.safetensors" broken
expect 3 "config.json and the weights are not of one model"
cp "$folders/llama/model.safetensors" broken
sed -i 's/"model_type": "llama"/"model_type": "mamba"/' broken/config.json
expect 4 "checkpoints are read of gemma2, .*, qwen3"
exit $failed
