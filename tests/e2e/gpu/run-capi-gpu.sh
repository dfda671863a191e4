#!/usr/bin/env bash
# The C API on a GPU: what generate prints is what gpt2c-run prints there, by whatever name of the
# device; requests through an engine are answered as alone; a GPU that is not there is an error.
set -uo pipefail
. "$GPT2C_SOURCE_DIR/tests/e2e/common/plan.sh"
command -v cc >/dev/null || skip "no C compiler"
gpuPlan "$GPT2C_SOURCE_DIR/examples/sample/model.onnx" sample.plan
lib=$(dirname "$(command -v gpt2c)")/../lib
failed=0
fail() {
  echo "FAIL: $*"
  failed=1
}

for program in generate requests; do
  cc -std=c11 "$GPT2C_SOURCE_DIR/examples/c-api/$program.c" -I"$GPT2C_SOURCE_DIR/include" \
    -L"$lib" -lgpt2c -Wl,-rpath,"$lib" -o $program || exit 1
done
gpt2c-run sample.plan --device=cuda --prompt="The river" -n 12 >expected.txt 2>/dev/null || exit 1
gpt2c-run sample.plan --device=cuda:0 --prompt="The river" -n 12 2>/dev/null |
  cmp - expected.txt || fail "--device=cuda:0"
for device in cuda cuda:0 auto; do
  ./generate sample.plan "The river" $device 12 2>notes.txt | cmp - expected.txt ||
    fail "$device: $(cat notes.txt)"
  grep -q "^CPU" notes.txt && fail "$device is the CPU"
done
./requests sample.plan cuda 12 "A" "The river" >requests.txt 2>notes.txt
case $? in
0)
  [ "$(grep -A9 '^2:' requests.txt)" = "2:$(cat expected.txt) (12 tokens)" ] ||
    fail "requests: $(cat requests.txt)"
  ;;
4) echo "note: no engine here: $(cat notes.txt)" ;;
*) fail "requests: $(cat notes.txt)" ;;
esac
./generate sample.plan "The river" cuda:99 12 >/dev/null 2>notes.txt
[ $? = 6 ] && grep -q "no CUDA device 99" notes.txt || fail "cuda:99: $(cat notes.txt)"
rm -f sample.plan
exit $failed
