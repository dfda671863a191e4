#!/usr/bin/env bash
# Decode steps in shares of thread block clusters: on trained weights, the sample model in 4 and 20
# heads of 64 (bench/make-model.py --widen), whose tokens are those of the sample itself on the
# CPU; on random ones of uneven shapes and of Llamas, one to 16 sequences, in fp16, bf16 and with
# int8 and int4 weights, against the graph of launches; and a state in pages, against sessions.
set -uo pipefail
source "$GPT2C_SOURCE_DIR/tests/e2e/common/plan.sh"
source "$GPT2C_SOURCE_DIR/tests/e2e/need-onnx.bash"
sample=$GPT2C_SOURCE_DIR/examples/sample
make="$GPT2C_SOURCE_DIR/bench/make-model.py"
stride=12 # of the sample's tokens among the 50257 of the wide model
count=60
gpuPlan "$sample/model.onnx" sample.plan
needOnnx

# tokens PLAN DEVICE PROMPT: the new ones.
tokens() {
  gpt2c-run "$1" --device="$2" --ids="$3" -n $count --ignore-eos --output=ids 2>stderr.txt ||
    cat stderr.txt
}
# plan MODEL TYPE FORM PLAN BATCH
plan() {
  local options=--precision=$2
  [ "$2" = int8 ] && options="--precision=fp16 --quantize=w8a16 --weight-group=0"
  [ "$2" = int4 ] && options="--precision=fp16 --quantize=w4a16 --calibration-tokens=256"
  # shellcheck disable=SC2086
  gpt2c "$1" -o "$4" --gpu-arch=native $options --max-batch="$5" --decode="$3" --verify=off \
    2>"$4.txt" || { cat "$4.txt"; touch failed; }
}
wide() { awk -F, -v OFS=, -v s=$stride '{ for (i = 1; i <= NF; ++i) $i *= s; print }'; }
rm -f failed

# Models, and all plans at once.
copies="1 5"
for n in $copies; do
  { python3 "$make" wide$n.onnx --widen="$sample/model.onnx" --copies=$n || touch failed
    plan wide$n.onnx fp16 persistent wide$n.plan 1; } &
done
# heads and width of a GPT-2; layers, width, MLP, heads, heads of keys, vocabulary and, where they
# are not as wide as the rest, elements of a head of a Llama, 1 if its vocabulary is tied, and 1 if
# its queries and keys are normed
shapes=("fp16 25 1600" "int8 12 960" "bf16 11 704" "fp16 7 840" "bf16 2 256 704 8 2 4096"
  "fp16 2 512 1536 8 8 8000" "int8 2 1024 4096 16 4 9001" "fp16 1 2048 8192 32 8 8000"
  "fp16 2 576 1536 9 3 8000" "int8 2 640 1792 8 4 8000 128 0" "bf16 2 1024 2048 12 2 8000 64 0"
  "fp16 2 1024 3072 16 8 8000 128 1 1" "bf16 2 576 1536 9 3 8000 64 1 1"
  "fp16 2 320 1024 4 1 8000 80 0" "bf16 2 1280 3456 20 5 8000" "int8 2 896 2432 14 7 8000 128 0"
  "int4 25 1600" "int4 12 768" "int4 1 2048 8192 32 8 8000" "int4 2 576 1536 9 3 8000")
# Contexts of more keys than a ring holds.
declare -A contexts=([8]=8192 [9]=6144)
for i in "${!shapes[@]}"; do
  read -r type sizes <<<"${shapes[i]}"
  read -r heads width more <<<"$sizes"
  { if [ -n "$more" ]; then
      # shellcheck disable=SC2086
      python3 "$GPT2C_SOURCE_DIR/tests/data/make_llama.py" $i.onnx ${contexts[$i]:-1024} $sizes
    else
      python3 "$make" $i.onnx --layers=2 --heads="$heads" --width="$width" --vocab=8001
    fi || touch failed
    plan $i.onnx "$type" persistent $i.persistent.plan 16
    plan $i.onnx "$type" graph $i.graph.plan 16; } &
done
wait
[ -e failed ] && exit 1
# has PLAN HEADER: one of its kernels includes it. grep -q would end gpt2c-dump, which is a failure.
has() { gpt2c-dump --cuda "$1" | grep "$2" >/dev/null; }
if ! has wide1.plan decode_step/shares; then
  skip "a plan for this GPU decodes without clusters"
fi

# Prose that the sample continues with choices far apart (run-clusters-gpu.sh).
prompts=(
  "285,282,261,3929,3966"
  "1344,1328,2290,14,430,460,1579,302,281,1933,583,2253,1805"
)
trained() {
  local i
  for i in "${!prompts[@]}"; do
    tokens sample.plan cpu "${prompts[i]}" | wide >"expected.$i.txt"
  done
  for n in $copies; do
    for i in "${!prompts[@]}"; do
      tokens wide$n.plan cuda "$(wide <<<"${prompts[i]}")" >tokens.txt
      cmp "expected.$i.txt" tokens.txt && continue
      echo "FAIL: $n copies, prompt $i"
      touch failed
    done
    echo "$n copies: $count tokens of ${#prompts[@]} prompts"
  done
}

# agree GRAPH PERSISTENT IDS: JSON of gpt2c-run, and the tokens of the persistent plan in launches
# of many steps. Tokens are the graph's, or the first other one is as probable within rounding; up
# to there log probabilities are.
cat >agree.py <<'PYTHON'
import json, sys
graph, ours = (json.load(open(name))["sequences"] for name in sys.argv[1:3])
many = [list(map(int, line.split(","))) for line in open(sys.argv[3])]
if [s["ids"] for s in ours] != many:
    sys.exit("launches of many steps have other tokens than those of one")
compared = 0
for s, (p, q) in enumerate(zip(graph, ours)):
    for i, (x, y) in enumerate(zip(p["logprobs"], q["logprobs"])):
        where = f"sequence {s}, token {i}: {x} by the graph, {y}"
        top = {t["id"]: t["logprob"] for t in x["top"]}
        if y["id"] not in top or abs(top[y["id"]] - y["logprob"]) > 0.05:
            sys.exit(where)
        if x["id"] != y["id"]:
            if top[x["id"]] - top[y["id"]] > 0.05:
                sys.exit(where)
            break
        compared += 1
if len(graph) > 2 and compared < len(graph) * len(many[0]) / 3:
    sys.exit(f"only {compared} tokens were compared")
print(f"  {compared} of {len(graph) * len(many[0])} tokens are the graph's, {len(graph)} sequences")
PYTHON
random() { # LENGTHS: options of gpt2c-run
  python3 -c "
import random, sys
for n in map(int, sys.argv[1:]):
    random.seed(n)
    print('--ids=' + ','.join(str(random.randrange(4000)) for _ in range(n)))" "$@"
}
against() { # NUMBER OF A SHAPE, LENGTHS: of the graph
  local i=$1 prompts
  shift
  mapfile -t prompts < <(random "$@")
  for form in graph persistent; do
    gpt2c-run "$i.$form.plan" --device=cuda "${prompts[@]}" -n 40 --ignore-eos --output=json \
      --logprobs=5 >"$i.$form.json" 2>"$i.err" || { cat "$i.err"; touch failed; }
  done
  gpt2c-run "$i.persistent.plan" --device=cuda "${prompts[@]}" -n 40 --ignore-eos --output=ids \
    >"$i.ids" 2>"$i.err" || { cat "$i.err"; touch failed; }
  python3 agree.py "$i.graph.json" "$i.persistent.json" "$i.ids" ||
    { echo "FAIL: ${shapes[i]}, prompts of $*"; touch failed; }
}
shape() {
  local i=$1 forms="shares/shares.cuh shares/rows.cuh"
  # Heads of 120 are in shares one sequence at a time, and have no pages.
  [[ ${shapes[i]} == "fp16 7 840" ]] && forms=shares/shares.cuh
  for form in $forms; do
    has "$i.persistent.plan" "$form" || { echo "FAIL: ${shapes[i]} has no $form"; touch failed; }
  done
  against "$i" 17
  against "$i" 900
  against "$i" 1 15 16 100 257 513 600 900
  against "$i" 700 16 1 33 64 127 258 15 900
  against "$i" 5 600 80 1 15 16 17 100 257 64 513 300 31 900 48 2
  against "$i" 40 3 500
  [ -z "${contexts[$i]:-}" ] || against "$i" $((contexts[$i] - 100))
  # The engine's single tokens are steps over pages, a few at a time.
  [[ ${shapes[i]} == "fp16 7 840" ]] || e2e_engine "$i.persistent.plan" cuda 40 ||
    { echo "FAIL: pages"; touch failed; }
  echo "${shapes[i]}: as by the graph"
}
trained &
for i in "${!shapes[@]}"; do
  shape "$i" >"$i.txt" 2>&1 &
  [ $((i % 3)) = 2 ] && wait
done
wait
for i in "${!shapes[@]}"; do cat "$i.txt"; done
[ ! -e failed ]
status=$?
rm -f ./*.plan ./*.onnx
exit $status
