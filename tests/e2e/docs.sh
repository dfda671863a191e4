#!/usr/bin/env bash
# The commands of docs/ run and print what the pages show; those of docs/python.md are tested with
# the Python package.
. "$GPT2C_SOURCE_DIR/tests/skip.bash"
lib=$(dirname "$(command -v gpt2c)")/../lib
nm -D "$lib/libgpt2c.so" | grep -q '__asan_init\|__tsan_init' &&
  skip "a C program cannot load a sanitized library"
exec "$GPT2C_SOURCE_DIR/scripts/run-docs.py"
