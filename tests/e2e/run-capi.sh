#!/usr/bin/env bash
# examples/c-api against the shared library: builds as C without warnings, runs, and says why there
# is no GPU.
set -uo pipefail
root=$GPT2C_SOURCE_DIR
lib=$(dirname "$(command -v gpt2c)")/../lib
compiler=$(command -v cc) || { echo "skipped: no C compiler"; exit 77; }
nm -D "$lib/libgpt2c.so" | grep -q '__asan_init\|__tsan_init' &&
  { echo "skipped: a C program cannot load a sanitized library"; exit 77; }
"$compiler" -std=c11 -Wall -Wextra -Wpedantic -Werror \
  "$root/examples/c-api/generate.c" -I"$root/include" -L"$lib" -lgpt2c \
  -Wl,-rpath,"$lib" -o generate || exit 1
exported=$(nm -D --defined-only "$lib/libgpt2c.so" | awk '$2 == "T" {print $3}' | grep -v '^gpt2c_')
[ -z "$exported" ] || { echo "FAIL: libgpt2c.so exports more than its API: $exported"; exit 1; }
gpt2c "$root/examples/sample/model.onnx" -o sample.plan --gpu-arch=none || exit 1
out=$(./generate sample.plan "The river" 8 2>&1)
rc=$?
rm -f sample.plan
grep -q "^2 tokens, room for 8 sequences of 512$" <<<"$out" || { echo "FAIL: $out"; exit 1; }
# The plan has no code for any GPU.
[ $rc = 6 ] && grep -q "^error: " <<<"$out" ||
  { echo "FAIL: exit code $rc, expected 6: $out"; exit 1; }
