#!/usr/bin/env bash
# gpt2c-eval on the sample model: perplexities, the comparison with a baseline, limits, and what it
# refuses.
set -uo pipefail
sample=$GPT2C_SOURCE_DIR/examples/sample
failed=0

fail() {
  echo "FAIL: $*"
  failed=1
}

# expect CODE TEXT COMMAND...: ends with CODE, and its output holds TEXT (a fixed string).
expect() {
  local code=$1 text=$2 out rc
  shift 2
  out=$("$@" 2>&1 </dev/null)
  rc=$?
  [ $rc = "$code" ] || fail "exit code $rc, expected $code: $*: $out"
  grep -qF -- "$text" <<<"$out" || fail "no '$text' in the output of $*: $out"
}

for precision in fp32 fp16; do
  gpt2c "$sample/model.onnx" -o $precision.plan --gpu-arch=none --precision=$precision || exit 1
done
evaluate() { gpt2c-eval --device=cpu "$@"; }
# The value of a JSON key, the last where there are several.
value() { grep -o "\"$2\": [-0-9.e]*" "$1" | tail -1 | sed 's/.*: //'; }
# near A B SHARE
near() { awk -v a="$1" -v b="$2" -v s="$3" 'BEGIN { d = a / b - 1; exit !(d < s && d > -s) }'; }

cat >short.txt <<'TEXT'
The river ran past the old house, and in the evening the children went down to look at the boats.<|endoftext|>She opened the door and
saw that nobody had been there since the morning. "It is late," said her brother, "and we have a long way to go."
TEXT

# Windows of the whole text and half of it, every token with all that stands in front of it, ids
# instead of text.
evaluate fp32.plan --text=short.txt -o json >whole.json || fail "a short text"
[ "$(value whole.json window)" = 512 ] && [ "$(value whole.json stride)" = 512 ] ||
  fail "window: $(cat whole.json)"
tokens=$(value whole.json tokens)
evaluate fp32.plan --text=short.txt --window=16 -o json >cut.json || fail "--window"
awk -v a="$(value cut.json perplexity)" -v b="$(value whole.json perplexity)" \
  'BEGIN { exit !(a > b) }' ||
  fail "less context should not predict better: $(cat cut.json whole.json)"
evaluate fp32.plan --text=short.txt --window=16 --stride=1 -o json >sliding.json || fail "--stride"
[ "$(value sliding.json tokens)" = "$tokens" ] ||
  fail "a sliding window scores every token: $(cat sliding.json)"
evaluate fp32.plan --text=short.txt --max-tokens=17 -o json | grep -q '"tokens": 16' ||
  fail "--max-tokens"
evaluate fp32.plan --text=- -o csv <short.txt >stdin.csv || fail "standard input"
[ "$(head -1 stdin.csv)" = "plan,precision,perplexity" ] && [ "$(wc -l <stdin.csv)" = 2 ] ||
  fail "$(cat stdin.csv)"
printf '5 6,7\n8' >some.ids
evaluate fp32.plan --text=some.ids -o json | grep -q '"tokens": 3' || fail "ids"

# Half precision beside single: close to it, and the baseline comes first.
evaluate fp16.plan fp32.plan --baseline=fp32.plan --text=short.txt >table.md || fail "--baseline"
[ "$(grep -c '^| fp' table.md)" = 3 ] ||
  fail "a row for the baseline and each plan: $(cat table.md)"
grep -q '^| fp32.plan .*| +0.0000 | 0.0000 | 0 | 0 | 100.000 | 0 |$' table.md ||
  fail "a plan equals itself: $(cat table.md)"
evaluate fp16.plan --baseline=fp32.plan --text=short.txt -o json >half.json ||
  fail "--baseline to JSON"
for key in kl_mean kl_p99 largest_logit_error top1_agreement perplexity_increase; do
  [ -n "$(value half.json $key)" ] || fail "JSON without $key"
done
near "$(value half.json perplexity)" "$(value whole.json perplexity)" 0.005 ||
  fail "fp16: $(cat half.json)"

# Limits.
expect 0 "perplexity" evaluate fp16.plan --baseline=fp32.plan --text=short.txt \
  --max-ppl-increase=5% --max-kl=0.1
expect 8 "the limit is 0" evaluate fp16.plan --baseline=fp32.plan --text=short.txt --max-kl=0
expect 1 "is no share" evaluate fp16.plan --baseline=fp32.plan --text=short.txt \
  --max-ppl-increase=little
expect 1 "give --baseline" evaluate fp16.plan --text=short.txt --max-kl=1

expect 1 "do not fit" evaluate fp32.plan --text=short.txt --window=16 --stride=17
expect 1 "--max-context=600" evaluate fp32.plan --text="$sample/merges.txt" --window=600
printf '1 4096' >foreign.ids
expect 1 "the model's ids go from 0 to 4095" evaluate fp32.plan --text=foreign.ids
expect 1 "has no tokens" evaluate fp32.plan --text=/dev/null
expect 2 "cannot read" evaluate fp32.plan --text=nowhere.txt
expect 2 "nowhere.plan" evaluate nowhere.plan --text=short.txt

# The first 40 windows of a text that the model has not seen: 23.714534 by PyTorch 2.11, in float32
# and in float64.
if [ -f "$GPT2C_SHARED_DIR/text/heldout.txt" ]; then
  evaluate fp32.plan --text="$GPT2C_SHARED_DIR/text/heldout.txt" --max-tokens=20480 -o json \
    >heldout.json ||
    fail "held-out text"
  near "$(value heldout.json perplexity)" 23.714534 0.0001 ||
    fail "held-out text: $(cat heldout.json)"
else
  echo "without ../shared: the comparison with PyTorch on held-out text is left out"
fi

rm -f ./*.plan
exit $failed
