#!/usr/bin/env bash
# The commands of docs/getting-started.md, docs/c-api.md and docs/tools/ run and print what the
# pages show.
lib=$(dirname "$(command -v gpt2c)")/../lib
nm -D "$lib/libgpt2c.so" | grep -q '__asan_init\|__tsan_init' &&
  { echo "skipped: a C program cannot load a sanitized library"; exit 77; }
exec "$GPT2C_SOURCE_DIR/scripts/run-docs.py"
