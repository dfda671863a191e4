#!/usr/bin/env bash
# Tokenizers of many kinds, and what they make of random texts.
#   toys.sh ENCODE FOLDER
set -euo pipefail
here=$(dirname "$0")
rm -rf "$2/toys"
python3 "$here/make_toys.py" "$2/toys"
python3 "$here/compare.py" "$1" 100 "$2"/toys/*/tokenizer.json
