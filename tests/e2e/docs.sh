#!/usr/bin/env bash
# The commands of docs/getting-started.md and docs/tools/ run and print what the pages show.
exec "$GPT2C_SOURCE_DIR/scripts/run-docs.py"
