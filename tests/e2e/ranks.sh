#!/usr/bin/env bash
# Plans that several ranks run: the tokens of every export equal those of one rank, by threads and
# by processes; what goes wrong among processes ends with words, and soon.
set -uo pipefail
exec python3 "$GPT2C_SOURCE_DIR/tests/e2e/ranks.py"
