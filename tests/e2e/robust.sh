#!/usr/bin/env bash
# What goes wrong around the tools: disks, permissions, signals, drivers, memory, neighbours. Each
# ends with the exit code of docs/errors.md and one message, leaves nothing half written, and ends.
set -uom pipefail # with job control: processes in the background take SIGINT
sample=$GPT2C_SOURCE_DIR/examples/sample/model.onnx
small=$GPT2C_SOURCE_DIR/tests/data/broken/sound/model.onnx
build=$(dirname "$(command -v gpt2c)")/..
failed=0

fail() {
  echo "FAIL: $*"
  failed=1
}

# expect CODE TEXT COMMAND...: ends with CODE within a minute, and says TEXT (a pattern), one error.
expect() {
  local code=$1 text=$2 out rc
  shift 2
  out=$(timeout 60 "$@" 2>&1 >/dev/null </dev/null)
  rc=$?
  [ $rc = "$code" ] || fail "exit code $rc, expected $code: $*: $out"
  grep -q -- "$text" <<<"$out" || fail "no '$text' in what $* says: $out"
  [ "$code" = 0 ] || [ "$(grep -c '^error: ' <<<"$out")" = 1 ] || fail "not one error: $*: $out"
}
# nothingBeside: no file that was begun and not finished.
nothingBeside() {
  [ -z "$(find . -name '*.tmp*' -print -quit)" ] || fail "$1 leaves $(find . -name '*.tmp*')"
}
compile() { gpt2c "$sample" -o "$@" --gpu-arch=none --verify=off --precision=fp32; }

find . -mindepth 1 -delete
compile good.plan || exit 1
compile other.plan --max-context=100 || exit 1

# A disk that is full, a file that may not grow: the old file stays.
cp good.plan kept.plan
expect 2 "cannot write 'kept.plan'" bash -c "ulimit -f 2000; exec gpt2c '$sample' -o kept.plan \
  --gpu-arch=none --verify=off"
cmp -s good.plan kept.plan || fail "a write that failed changed the file"
expect 2 "cannot write '/dev/full'" gpt2c "$small" -o /dev/full --gpu-arch=none
expect 2 "cannot write to stdout" bash -c "exec gpt2c-dump good.plan >/dev/full"
expect 2 "cannot write to stdout" bash -c \
  "exec gpt2c-run good.plan --device=cpu --ids=5 -n 2 --output=jsonl >/dev/full"
if unshare -rm true 2>/dev/null; then
  mkdir disk
  expect 2 "cannot write 'disk/a.plan': No space left" unshare -rm bash -c "
    mount -t tmpfs -o size=4m none disk && gpt2c '$sample' -o disk/a.plan --gpu-arch=none \
      --verify=off; rc=\$?; [ -z \"\$(ls -A disk)\" ] || echo 'error: disk/ is not empty' >&2
    exit \$rc"
fi
nothingBeside "a full disk"

# No permission, as a user that may not.
mkdir -m 555 closed
cp good.plan secret.plan
chmod 000 secret.plan
as=()
[ "$(id -u)" != 0 ] || as=(unshare -U --map-user=12345)
if "${as[@]}" true 2>/dev/null && ! "${as[@]}" test -w closed; then
  expect 2 "cannot write 'closed/a.plan': Permission denied" \
    "${as[@]}" gpt2c "$small" -o closed/a.plan --gpu-arch=none
  expect 2 "cannot read 'secret.plan': Permission denied" "${as[@]}" gpt2c-dump secret.plan
fi

# Compilers that write one file and share one cache of kernels all succeed.
export GPT2C_CUDA_PATH=$build/nvrtc-echo
gpu=(--gpu-arch=sm_90a --max-batch=1 --verify=off)
gpt2c "$small" -o alone.plan "${gpu[@]}" --kernel-cache=off 2>/dev/null || fail "kernels of text"
running=()
for _ in 1 2 3 4; do
  gpt2c "$small" -o shared.plan "${gpu[@]}" --kernel-cache=kernels 2>/dev/null &
  running+=($!)
done
for pid in "${running[@]}"; do
  wait "$pid" || fail "one of four compilers at once: exit code $?"
done
cmp -s alone.plan shared.plan || fail "four compilers at once write another plan"

# SIGINT, SIGTERM and SIGKILL at any moment: the file is the old one or the new one, and the next
# compiler cleans up and finds a cache that it can use.
cp alone.plan old.plan
for signal in INT TERM KILL KILL KILL; do
  for delay in 0.01 0.05 0.12; do
    cp alone.plan killed.plan
    gpt2c "$small" -o killed.plan "${gpu[@]}" --max-context=8 --kernel-cache=kernels 2>/dev/null &
    pid=$!
    sleep $delay
    kill -$signal $pid 2>/dev/null
    wait $pid 2>/dev/null
    gpt2c-dump killed.plan >/dev/null 2>&1 || fail "SIG$signal after $delay s: no whole plan"
  done
done
expect 0 "" gpt2c "$small" -o killed.plan "${gpu[@]}" --kernel-cache=kernels
cmp -s alone.plan killed.plan || fail "a cache that compilers were killed with gives another plan"
nothingBeside "a killed compiler"

# The first SIGINT ends a generation, a reader that goes away as well.
gpt2c-run good.plan --device=cpu --ids=5 -n 500 --ignore-eos >/dev/null 2>&1 &
pid=$!
sleep 0.1
kill -INT $pid
wait $pid
[ $? = 130 ] || fail "SIGINT ends a generation with $?"
timeout 60 gpt2c-run good.plan --device=cpu --ids=5 -n 500 --ignore-eos 2>/dev/null |
  head -c 1 >/dev/null
[ "${PIPESTATUS[0]}" = 141 ] || fail "without a reader a generation ends with ${PIPESTATUS[0]}"

# A plan that is replaced while it is open: by another file nothing happens, written over in place
# it is an error.
# meanwhile COMMAND: the second turn comes behind it.
meanwhile() {
  cp good.plan open.plan
  { echo A; until grep -q "tokens/s" turns.txt; do sleep 0.02; done; eval "$1"; echo B; } |
    timeout 60 gpt2c-run open.plan -i --device=cpu -n 3 --threads=1 >turns.txt 2>&1
  echo "exit code ${PIPESTATUS[1]}" >>turns.txt
}
: >turns.txt
meanwhile : && sed 's/[0-9.]* tokens.s//' turns.txt >expected.txt
: >turns.txt
meanwhile "cp other.plan new.plan; mv new.plan open.plan"
sed 's/[0-9.]* tokens.s//' turns.txt | cmp -s - expected.txt || fail "renamed: $(cat turns.txt)"
grep -q "exit code 0" turns.txt || fail "$(cat turns.txt)"
: >turns.txt
meanwhile "cp other.plan open.plan; touch open.plan"
grep -q "^error: the plan's file was written to while it was open" turns.txt &&
  grep -q "exit code 2" turns.txt || fail "written over: $(cat turns.txt)"
: >turns.txt
meanwhile ": >open.plan"
grep -q "^error: cannot read the plan any more" turns.txt && grep -q "exit code 2" turns.txt ||
  fail "cut: $(cat turns.txt)"

# Memory, the host's and a GPU's; drivers that are not there, too old, or broken.
expect 10 "out of memory\|address space" bash -c \
  "ulimit -v 300000; exec gpt2c-run good.plan --device=cpu --threads=64 --ids=5 -n 2"
fake=(env LD_LIBRARY_PATH="$build/cuda-fake" GPT2C_FAKE_CUDA_BYTES=30000)
old=(env LD_LIBRARY_PATH="$build/cuda-fake-old")
run=(gpt2c-run alone.plan --ids=5)
expect 10 "^error: out of GPU memory for .*: asked for [0-9]* bytes .* free on Fake GPU" \
  "${fake[@]}" GPT2C_FAKE_CUDA_BYTES=1000 "${run[@]}" --device=cuda
expect 10 "^error: out of GPU memory for " "${fake[@]}" "${run[@]}" --device=auto
expect 6 "no CUDA device 3: the driver reports 1, numbered from 0" \
  "${fake[@]}" "${run[@]}" --device=cuda:3
expect 1 "no device; there are auto, cuda, cuda:N, cuda:N,M,.. and cpu" \
  "${fake[@]}" "${run[@]}" --device=cuda:x
# gpt2c itself takes a GPU for its architecture and for what it measures.
on=("${fake[@]}" gpt2c "$sample" -o on.plan --device=cuda:3)
expect 6 "no CUDA device 3: the driver reports 1, .*, or name architectures" "${on[@]}"
expect 6 "no CUDA device 3: .*, or name architectures" "${on[@]}" --gpu-arch=native
expect 6 "no CUDA device 3: the driver reports 1, numbered from 0" \
  "${on[@]}" --gpu-arch=none --quantize=w8a16 --calibration="$0"
expect 6 "driver is too old: libcuda.so.1 lacks cuTensorMapEncodeTiled. Install an NVIDIA driver" \
  "${old[@]}" "${run[@]}" --device=cuda
expect 6 "cuInit failed: NAME (999): its reason (driver for CUDA 12.4). Install" \
  "${fake[@]}" GPT2C_FAKE_CUDA_INIT=999 "${run[@]}" --device=cuda
expect 0 "running on the CPU: the NVIDIA driver is too old" "${old[@]}" "${run[@]}" -n 2

# A prompt of 1 MB, and 10,000 prompts.
yes 'The river ran past the house.' | head -c 1000000 >long.txt
expect 1 "prompt 1 needs a context of 266667 tokens, the plan holds 512" \
  gpt2c-run good.plan --device=cpu --prompt-file=long.txt
yes a | head -n 10000 >many.txt
compile many.plan --max-batch=256 --max-context=16
timeout --foreground 120 gpt2c-run many.plan --device=cpu --prompt-lines=many.txt -n 1 \
  --output=jsonl >many.jsonl 2>many.log || fail "10,000 prompts: $(cat many.log)"
[ "$(wc -l <many.jsonl)" = 10000 ] &&
  [ "$(grep -o '"text":"[^"]*"' many.jsonl | sort -u | wc -l)" = 1 ] ||
  fail "10,000 prompts: $(wc -l <many.jsonl) answers"

chmod 755 closed
find . -mindepth 1 -delete
exit $failed
