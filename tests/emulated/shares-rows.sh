#!/usr/bin/env bash
# shares-rows.sh SEED CASES [whole]: decode steps of 9 to 16 sequences as one kernel, whose keys
# several blocks share, or of whose sequences a block has two, against the same plan on the CPU
# device. The first case is a fixed one, others are drawn: heads, width, MLP, weights, sequences and
# their lengths. whole: requests through the engine, over pages, too.
set -euo pipefail
source "$GPT2C_SOURCE_DIR/tests/e2e/need-onnx.bash"
source "$GPT2C_SOURCE_DIR/tests/e2e/common/plan.sh"
needOnnx

cat >draw.py <<'PYTHON'
import random, sys
draw = random.Random(int(sys.argv[1]))
def of(*values): return draw.choice(values)
# Layers, width, MLP, heads, heads of keys, vocabulary, elements of a head, tied; precision;
# lengths.
cases = ["1 192 384 9 3 160 16 0 fp16 " + " ".join(str(37 * i % 61 + 1) for i in range(11))]
for _ in range(1, int(sys.argv[2])):
    keys, group, dim = of(1, 2, 3, 5, 8), of(1, 2, 3, 4), of(16, 32, 48)
    width, precision = of(240, 256, 368, 384), of("fp16", "bf16", "int8")
    lengths = [draw.randrange(1, of(18, 90)) for _ in range(draw.randrange(9, 17))]
    cases.append(f"{of(1, 1, 2)} {width} {16 * draw.randrange(16, 50)} {keys * group} {keys} 203 "
                 f"{dim} {of(0, 1)} {precision} " + " ".join(map(str, lengths)))
print("\n".join(cases))
PYTHON
cat >agree.py <<'PYTHON'
import json, sys
cpu, gpu = (json.load(open(name))["sequences"] for name in sys.argv[1:3])
allowed, compared = float(sys.argv[3]), 0
for s, (p, q) in enumerate(zip(cpu, gpu)):
    for i, (x, y) in enumerate(zip(p["logprobs"], q["logprobs"])):
        top = {t["id"]: t["logprob"] for t in x["top"]}
        if y["id"] not in top or abs(top[y["id"]] - y["logprob"]) > allowed:
            sys.exit(f"sequence {s}, token {i}: {x} on the CPU, {y}")
        compared += 1
        if x["id"] != y["id"]:
            break
print(f"  {compared} tokens of {len(cpu)} sequences")
if compared < 2 * len(cpu):
    sys.exit("too few were compared")
PYTHON
prompts() { # LENGTH...
  python3 -c "
import random, sys
for n in map(int, sys.argv[1:]):
    draw = random.Random(n)
    print('--ids=' + ','.join(str(draw.randrange(150)) for _ in range(n)))" "$@"
}
check() { # SIZES OF 8 NUMBERS, PRECISION, LENGTHS
  local sizes=("${@:1:8}") precision=$9 ids flags=()
  shift 9
  [ "$precision" = int8 ] && flags=(--quantize=w8a16 --weight-group=0 '--quantize-include=.*')
  python3 "$GPT2C_SOURCE_DIR/tests/data/make_llama.py" rows.onnx 128 "${sizes[@]}"
  compilePlan rows.onnx -o rows.plan --gpu-arch="$GPT2C_TEST_ARCH" --decode=persistent \
    --precision="${precision/int8/fp16}" "${flags[@]}" --max-batch=16 --verify=off --device=cpu
  gpt2c-dump --cuda rows.plan >rows.cuda
  grep -o 'HeadsEach=\*/[0-9]*, /\*KeysEach=\*/[0-9]*, /\*Rows=\*/16, /\*RowParts=\*/[0-9]*' \
    rows.cuda | sort -u | sed "s|^|${sizes[*]} $precision, $#: |" ||
    { echo "FAIL: no step of 16 sequences"; exit 1; }
  mapfile -t ids < <(prompts "$@")
  for device in cpu cuda; do
    gpt2c-run rows.plan --device=$device "${ids[@]}" -n 3 --ignore-eos --output=json \
      --logprobs=8 >$device.json
  done
  python3 agree.py cpu.json cuda.json "$([ "$precision" = bf16 ] && echo 0.1 || echo 0.02)"
}
while read -r -a case; do
  check "${case[@]}"
done < <(python3 draw.py "$1" "$2")
[ -z "${3:-}" ] || e2e_engine rows.plan cuda 16
rm -f rows.* cpu.json cuda.json draw.py agree.py
