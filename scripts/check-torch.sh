#!/usr/bin/env bash
# scripts/check-torch.sh [BUILD] [TORCH...]: gpt2c.from_pretrained with the versions of PyTorch that
# people have, each with a Transformers of its time, or with the TORCH versions alone. Each gets an
# environment of its own in BUILD/check-torch, from PyPI (PIP_INDEX_URL and PIP_EXTRA_INDEX_URL may
# name another index, as that of wheels for the CPU, which are small), in which a tiny GPT-2 and a
# tiny Llama are exported, compiled and compared, and which then goes. A version that the index does
# not have for this Python is skipped by name. BUILD has the Python package (make wheel).
set -uo pipefail
cd "$(dirname "$0")/.."
root=$PWD
build=$(cd "${1:-build}" && pwd)
[ $# -gt 0 ] && shift
work=$build/check-torch
rm -rf "$work"
mkdir -p "$work/empty"
export GPT2C_SOURCE_DIR=$root PYTHONPATH=$build/python PYTHONDONTWRITEBYTECODE=1
export PIP_DISABLE_PIP_VERSION_CHECK=1 XDG_CACHE_HOME=$work/cache
failed=0

# PyTorch, Transformers, and what both need of their time; empty: the newest.
matrix="\
2.1.2|4.36.2|numpy<2 onnx==1.15.0
2.6.0|4.49.0|onnx==1.17.0 onnxscript==0.2.2
2.11.0|5.17.0|onnx onnxscript
newest||onnx onnxscript"

say() { echo "torch $*"; }

check() { # TORCH TRANSFORMERS PACKAGES
  local torch=torch transformers=transformers python=$work/venv/bin/python packages
  [ -n "$2" ] && torch=torch==$1 transformers=transformers==$2
  read -ra packages <<<"$3"
  rm -rf "$work/venv"
  python3 -m venv "$work/venv"
  if ! "$python" -m pip install --quiet --no-cache-dir --no-compile pytest "$torch" \
    "$transformers" "${packages[@]}" >"$work/pip.txt" 2>&1; then
    if grep -q "No matching distribution found for $torch" "$work/pip.txt"; then
      say "$1: skipped: the index has none for $("$python" --version)"
      return
    fi
    say "$1: $(cat "$work/pip.txt")"
    failed=1
    return
  fi
  local versions
  versions=$(cd "$work/empty" && "$python" -c '
import torch, transformers
print(torch.__version__, "with transformers", transformers.__version__)')
  # No other test of the file needs PyTorch; nothing may be skipped.
  if (cd "$work/empty" && "$python" -m pytest -q -p no:cacheprovider -rs \
    "$root/python/tests/test_compile.py" -k "exporter_that_is_here") >"$work/log.txt" 2>&1 &&
    grep -q "2 passed" "$work/log.txt"; then
    say "$versions: a GPT-2 and a Llama exported, compiled and equal"
  else
    say "${versions:-$1}: FAIL: $(cat "$work/log.txt")"
    failed=1
  fi
}

while IFS='|' read -r torch transformers packages; do
  if [ $# -eq 0 ] || [[ " $* " == *" $torch "* ]]; then
    check "$torch" "$transformers" "$packages" </dev/null
  fi
done <<<"$matrix"
rm -rf "$work"
exit $failed
