#!/usr/bin/env bash
# Decode steps of one sequence in shares of thread block clusters: on trained weights, the sample
# model in 4 and 20 heads of 64 (scripts/make-model.py --widen), whose tokens are those of the
# sample itself on the CPU; and on random ones in fp16, bf16 and with int8 weights, against the
# graph of launches.
set -uo pipefail
source "$GPT2C_SOURCE_DIR/tests/e2e/gpu-plan.bash"
sample=$GPT2C_SOURCE_DIR/examples/sample
make="$GPT2C_SOURCE_DIR/scripts/make-model.py"
stride=12 # of the sample's tokens among the 50257 of the wide model
count=120
failed=0
gpuPlan "$sample/model.onnx" sample.plan
if ! why=$(python3 -c "import numpy, onnx" 2>&1); then
  echo "skipped: $(tail -1 <<<"$why")"
  exit 77
fi

# tokens PLAN DEVICE PROMPT: the new ones.
tokens() {
  gpt2c-run "$1" --device="$2" --ids="$3" -n $count --ignore-eos --output=ids 2>stderr.txt ||
    cat stderr.txt
}
# plan MODEL FORM PLAN [TYPE]
plan() {
  local options=(--precision="${4:-fp16}")
  [ "${4:-}" = int8 ] && options=(--precision=fp16 --quantize=w8a16 "--quantize-include=.*")
  gpt2c "$1" -o "$3" --gpu-arch=native "${options[@]}" --max-batch=1 --decode="$2" --verify=off ||
    exit 1
}
wide() { awk -F, -v OFS=, -v s=$stride '{ for (i = 1; i <= NF; ++i) $i *= s; print }'; }

# Prose that the sample continues with choices far apart (run-clusters-gpu.sh).
prompts=(
  "285,282,261,3929,3966"
  "1344,1328,2290,14,430,460,1579,302,281,1933,583,2253,1805"
  "261,1509,331,259,605,12,285,642,3469,283,1968,744,259,887,416,1153,282,261,2284,457,13,365,576,266,372,1730"
)
for copies in 1 5; do
  python3 "$make" wide.onnx --widen="$sample/model.onnx" --copies=$copies || exit 1
  plan wide.onnx persistent wide.plan
  if ! gpt2c-dump --cuda wide.plan | grep -q "persistent_shares"; then
    echo "skipped: a plan for this GPU decodes without clusters"
    exit 77
  fi
  for prompt in "${prompts[@]}"; do
    tokens sample.plan cpu "$prompt" | wide >expected.txt
    tokens wide.plan cuda "$(wide <<<"$prompt")" >tokens.txt
    if cmp -s expected.txt tokens.txt; then
      echo "$copies copies: $count tokens equal the sample's"
    else
      echo "FAIL: $copies copies"
      diff expected.txt tokens.txt
      failed=1
    fi
  done
done

# Rotary heads that share keys, and gated MLPs.
llama() { # MODEL LAYERS WIDTH HIDDEN HEADS SHARED VOCABULARY
  python3 - "$GPT2C_SOURCE_DIR/scripts/bench-decoder.py" "$@" <<'PYTHON'
import importlib.util, sys
import numpy as np, onnx
spec = importlib.util.spec_from_file_location("bench_decoder", sys.argv[1])
maker = importlib.util.module_from_spec(spec)
spec.loader.exec_module(maker)
out, *sizes = sys.argv[2:]
graph = maker.sibling("make-model.py").Graph(np.random.default_rng(1))
onnx.save(maker.Decoder(graph, list(map(int, sizes)), 1024).build(), out)
PYTHON
}
# agree GRAPH PERSISTENT: JSON of gpt2c-run. Tokens are equal, or the first other one is as probable
# within rounding; up to there log probabilities are.
agree() {
  python3 - "$@" <<'PYTHON'
import json, sys
a, b = (json.load(open(name))["sequences"][0]["logprobs"] for name in sys.argv[1:])
for i, (x, y) in enumerate(zip(a, b)):
    top = {t["id"]: t["logprob"] for t in x["top"]}
    if y["id"] not in top or abs(top[y["id"]] - y["logprob"]) > 0.05:
        sys.exit(f"token {i}: {x} by the graph, {y}")
    if x["id"] != y["id"]:
        if top[x["id"]] - top[y["id"]] > 0.05:
            sys.exit(f"token {i}: {x} by the graph, {y}")
        break
print(f"  {i + 1} of {len(a)} tokens compared")
PYTHON
}
# against TYPE MODEL NAME: a random model, one sequence.
against() {
  plan "$2" persistent random.plan "$1"
  plan "$2" graph graph.plan "$1"
  gpt2c-dump --cuda random.plan | grep -q "persistent_shares" || failed=1
  for length in 1 16 600; do
    prompt=$(python3 -c "print(','.join(str(i * 37 % 4000) for i in range($length)))")
    for form in graph random; do
      gpt2c-run $form.plan --device=cuda --ids="$prompt" -n 40 --ignore-eos --output=json \
        --logprobs=5 >$form.json 2>stderr.txt || { cat stderr.txt; exit 1; }
    done
    agree graph.json random.json || { echo "FAIL: $3, $1, $length tokens"; failed=1; }
  done
  echo "$3, $1: as by the graph"
}
# Widths that nothing divides.
for shape in "25 1600 fp16" "12 960 int8" "11 704 bf16"; do
  read -r heads width type <<<"$shape"
  python3 "$make" random.onnx --layers=2 --heads="$heads" --width="$width" --vocab=8001 || exit 1
  against "$type" random.onnx "$heads heads, width $width"
done
for shape in "2 256 704 8 2 4096 bf16" "2 1024 4096 16 4 9001 int8" "1 2048 8192 32 8 8000 fp16"; do
  read -r layers width hidden heads shared vocab type <<<"$shape"
  llama random.onnx "$layers" "$width" "$hidden" "$heads" "$shared" "$vocab" || exit 1
  against "$type" random.onnx "Llama-like, $heads heads of $((width / heads)), $shared of keys"
done
rm -f ./*.plan ./*.onnx
exit $failed
