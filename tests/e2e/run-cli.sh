#!/usr/bin/env bash
# gpt2c-run on the sample model: what it prints, what it refuses, and with which exit code.
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

gpt2c "$sample/model.onnx" -o sample.plan --gpu-arch=none --max-batch=3 --max-context=64 || exit 1
run() { gpt2c-run sample.plan --device=cpu "$@"; }

# Text comes out the same in one piece, streamed, from a file and from standard input.
run --prompt="The river" -n 12 >prompt.txt 2>summary.txt || fail "--prompt"
grep -q "prompt tokens in .* tokens/s .*CPU" summary.txt ||
  fail "no summary of times: $(cat summary.txt)"
printf 'The river' >prompt-file.txt
run --prompt-file=prompt-file.txt -n 12 2>/dev/null | cmp - prompt.txt ||
  fail "--prompt-file differs from --prompt"
run --prompt-file=- -n 12 <prompt-file.txt 2>/dev/null | cmp - prompt.txt ||
  fail "standard input differs from --prompt"
echo 'The river' >prompt-file.txt
run --prompt-file=prompt-file.txt -n 12 2>/dev/null | cmp - prompt.txt ||
  fail "the last newline of --prompt-file is part of the prompt"

# Lines that cannot be continued are named and skipped; the others keep their numbers.
long=$(printf 'word %.0s' {1..80})
printf '\xef\xbb\xbfThe river\r\n\n  \n%s\nThe river' "$long" >lines.txt
run --prompt-lines=lines.txt -n 12 --output=text >lines-out.txt 2>notes.txt || fail "--prompt-lines"
sed "s/^/[1] /" prompt.txt | head -1 >first.txt
head -1 lines-out.txt | cmp - first.txt || fail "the mark at the beginning is part of the text"
grep -q '^\[5\]' lines-out.txt || fail "lines lost their numbers: $(cat lines-out.txt)"
for note in "line 2 of 'lines.txt' is skipped: it is blank" "line 3 of 'lines.txt' is skipped" \
  "line 4 of 'lines.txt' is skipped: it has .* tokens, the plan's context is 64"; do
  grep -q "$note" notes.txt || fail "no '$note': $(cat notes.txt)"
done
run --prompt-lines=lines.txt -n 2 --output=ids 2>/dev/null >lines-ids.txt
[ "$(wc -l <lines-ids.txt)" = 5 ] && [ -z "$(sed -n 3p lines-ids.txt)" ] ||
  fail "ids of lines: $(cat lines-ids.txt)"
run --prompt-lines=lines.txt -n 2 --output=jsonl 2>/dev/null >lines.jsonl
[ "$(grep -c '"skipped":"it ' lines.jsonl)" = 3 ] || fail "lines as JSON: $(cat lines.jsonl)"
printf '\n' >blank.txt
expect 1 "no line of --prompt-lines can be continued" run --prompt-lines=blank.txt -n 2

# A batch of different lengths gives each sequence what it gets alone.
run --ids=5,6,7,8,9,10 --ids=300,301 --ids=42 -n 10 --ignore-eos --output=ids >batch.txt \
  2>/dev/null || fail "a batch"
for ids in 5,6,7,8,9,10 300,301 42; do
  run --ids=$ids -n 10 --ignore-eos --output=ids 2>/dev/null
done >alone.txt
cmp batch.txt alone.txt || fail "a batch differs from its sequences alone"
[ "$(wc -l <batch.txt)" = 3 ] || fail "one line for each sequence"

# JSON says the same as the ids.
run --ids=300,301 -n 10 --ignore-eos --output=json >out.json 2>/dev/null || fail "--output=json"
[ "$(tr -d ' \n' <out.json | sed 's/.*"ids":\[\([0-9,]*\)\].*/\1/')" = "$(sed -n 2p batch.txt)" ] ||
  fail "JSON ids differ: $(cat out.json)"
for key in prompt_ids text load_ms prefill_ms decode_tokens_per_s device; do
  grep -q "\"$key\"" out.json || fail "JSON without $key"
done

# More prompts than the batch run in turn; lines of a file are prompts of their own.
printf 'One\nTwo\nThree\nFour\n' >lines.txt
run --prompt-lines=lines.txt -n 6 --output=jsonl >lines.jsonl 2>/dev/null || fail "--prompt-lines"
for text in One Two Three Four; do
  run --prompt=$text -n 6 --output=jsonl 2>/dev/null
done >alone.jsonl
untimed() { sed 's/"index":[0-9]/"index":_/; s/,"timings":{[^}]*}//' "$1"; }
untimed lines.jsonl | cmp - <(untimed alone.jsonl) ||
  fail "prompts in turn differ from each alone"
# Each has its times: the fourth waits for a place in the batch of three.
python3 - lines.jsonl <<'END' || fail "times: $(cat lines.jsonl)"
import json, sys
times = [json.loads(line)["timings"] for line in open(sys.argv[1])]
assert len(times) == 4
for t in times:
    assert 0 < t["first_token_ms"] < t["last_token_ms"]
    rate = 5e3 / (t["last_token_ms"] - t["first_token_ms"])  # six tokens are five steps
    assert abs(t["decode_tokens_per_s"] / rate - 1) < 1e-6
assert times[3]["first_token_ms"] >= max(t["last_token_ms"] for t in times[:3])
END
run --ids=5 -n 1 --output=jsonl 2>/dev/null | grep -q '"decode_tokens_per_s":null' ||
  fail "a rate of one token"

# Sampling: a seed gives one text, alone, among others and again; other seeds give others; the
# coldest temperature is greedy.
sampled=(--temperature=0.9 --top-k=40 --top-p=0.95 --seed=7 -n 12)
run --prompt="The river" "${sampled[@]}" >seed7.txt 2>/dev/null || fail "sampling"
run --prompt="The river" "${sampled[@]}" 2>/dev/null | cmp - seed7.txt ||
  fail "a seed gives two texts"
run --prompt="The river" --prompt="One" --samples=2 "${sampled[@]}" >samples.txt 2>/dev/null ||
  fail "--samples"
sed -n '1s/^\[1\] //p' samples.txt | cmp - seed7.txt || fail "neighbours change a sampled text"
[ "$(sort -u samples.txt | wc -l)" = 4 ] || fail "seeds give the same text"
cmp -s seed7.txt prompt.txt && fail "sampling is greedy"
run --prompt="The river" -n 12 --temperature=0.0001 2>/dev/null | cmp - prompt.txt ||
  fail "cold is not greedy"
run --prompt="The river" -n 12 --top-k=1 2>/dev/null | cmp - prompt.txt ||
  fail "the best one of one is not greedy"

# A stop string is not shown, not in part either, streamed or not.
text=$(cat prompt.txt)
stop=${text:6:4}
run --prompt="The river" -n 12 --stop="$stop" 2>/dev/null >stopped.txt || fail "--stop"
[ "$(cat stopped.txt)" = "${text%%"$stop"*}" ] || fail "--stop='$stop': $(cat stopped.txt)"
run --prompt="The river" -n 12 --stop="$stop" --output=json 2>/dev/null |
  grep -q '"finish_reason":"stop"' ||
  fail "no finish_reason of a stop string"
run --prompt="The river" --echo -n 12 2>/dev/null | cmp - <(echo "The river$text") || fail "--echo"

# Log probabilities: of the best tokens the first is the greedy choice.
run --ids=300,301 -n 4 --ignore-eos --output=json --logprobs=2 2>/dev/null >logprobs.json ||
  fail "--logprobs"
python3 - <<'PYTHON' || fail "log probabilities"
import json
for one in json.load(open("logprobs.json"))["sequences"][0]["logprobs"]:
    assert len(one["top"]) == 2 and one["top"][0]["id"] == one["id"], one
    assert one["top"][0]["logprob"] == one["logprob"] > one["top"][1]["logprob"], one
PYTHON

# The context's end ends an answer and says so; sliding goes on.
run --ids=1,2,3 -n 100 --ignore-eos --output=ids >full.txt 2>note.txt || fail "a full context"
[ "$(tr , '\n' <full.txt | wc -l)" = 62 ] || fail "a full context: $(cat full.txt)"
grep -q "context of 64 tokens is full" note.txt || fail "no note of the full context"
run --ids=1,2,3 -n 100 --ignore-eos --output=ids --slide=4 2>/dev/null >slid.txt || fail "--slide"
[ "$(tr , '\n' <slid.txt | wc -l)" = 100 ] || fail "--slide: $(cat slid.txt)"
[ "$(cut -d, -f1-62 slid.txt)" = "$(cat full.txt)" ] || fail "--slide changes what comes before"

# Without a KV state every token runs the whole graph, and comes out the same.
gpt2c "$sample/model.onnx" -o whole.plan --gpu-arch=none --disable-pass=recognise-attention \
  2>/dev/null || exit 1
gpt2c-run whole.plan --device=cpu --prompt="The river" -n 12 2>notes.txt | cmp - prompt.txt ||
  fail "whole graph differs"
grep -q "note: .*no KV state" notes.txt || fail "no note about the missing KV state"
expect 0 "PASS" gpt2c-run whole.plan --device=cpu --test-data="$sample/test_data_set_0"

expect 1 "nothing to do" run
expect 1 "takes no prompt" run --ids=1 --test-data="$sample/test_data_set_0"
expect 1 "'x' is no token id" run --ids=1,x
expect 1 "the model's ids go from 0 to 4095" run --ids=1,4096
expect 1 "--max-context=70" run --ids="$(seq -s, 70)"
expect 1 "there is nothing to continue" run --prompt=
expect 1 "-n must be at least 1" run --ids=1 -n 0
expect 1 "top_p is 0" run --ids=1 --top-p=0
expect 1 "temperature is -1" run --ids=1 --temperature=-1
expect 1 "--logprobs needs --output=json" run --ids=1 --logprobs=1
expect 1 "--samples must be" run --ids=1 --samples=0
expect 1 "at most half of the context of 64" run --ids=1 --slide=40
expect 2 "/nowhere.plan" gpt2c-run /nowhere.plan --ids=1
expect 2 "there is no" run --test-data=/nowhere

# Test data: within tolerance, out of it, and too long for this plan.
gpt2c "$sample/model.onnx" -o long.plan --gpu-arch=none || exit 1
expect 0 "PASS" gpt2c-run long.plan --device=cpu --test-data="$sample/test_data_set_0"
expect 8 "FAIL" gpt2c-run long.plan --device=cpu --test-data="$sample/test_data_set_0" --rtol=1e-12
expect 8 "out of tolerance" gpt2c-run long.plan --device=cpu \
  --test-data="$sample/test_data_set_0" --atol=1e-12
expect 1 "--max-context=96" run --test-data="$sample/test_data_set_0"

# On a terminal gpt2c says that there is no tokenizer beside the model; in a pipe it is quiet.
bare=(gpt2c "$GPT2C_SOURCE_DIR/tests/data/broken/sound/model.onnx" -o bare.plan --gpu-arch=none)
python3 -c 'import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))' \
  "${bare[@]}" >terminal.txt ||
  fail "gpt2c on a terminal: $(cat terminal.txt)"
grep -q "note: no tokenizer.json, vocab.json or tokenizer.model beside" terminal.txt ||
  fail "no note about the missing tokenizer: $(cat terminal.txt)"
[ -z "$("${bare[@]}" 2>&1)" ] || fail "gpt2c is not quiet in a pipe"

# A damaged plan is refused before anything runs.
cp sample.plan damaged.plan
middle=$(($(stat -c %s damaged.plan) / 2))
printf '\377' | dd of=damaged.plan bs=1 seek=$middle conv=notrunc status=none
expect 7 "damaged.plan" gpt2c-run damaged.plan --device=cpu --ids=1

rm -f ./*.plan
exit $failed
