#!/usr/bin/env bash
# bench/bench-decoder.py on a tiny decoder: what it prints, on the CPU. PyTorch's rows are left
# out where there is none.
set -uo pipefail
source "$GPT2C_SOURCE_DIR/tests/e2e/need-onnx.bash"
needOnnx
python3 "$GPT2C_SOURCE_DIR/bench/bench-decoder.py" --size=tiny --prompt=24 --tokens=6 \
  --device=cpu --precision=fp32 --samples=2 --work=work >table.md 2>error.txt || {
  cat error.txt
  exit 1
}
cat table.md
number='[0-9]+\.[0-9]+'
grep -Eq "^\| gpt2c \| $number \| $number \| 1\.00 \| 1\.00 \| - \|$" table.md &&
  grep -Eq "^\| gpt2c -O0 \| $number \| $number \| $number \| $number \| - \|$" table.md || {
  echo "FAIL: our rows are not in the table"
  exit 1
}
# fp32 on both sides: the same tokens.
if ! grep -q "^skipped: PyTorch: " error.txt; then
  [ "$(grep -c '^| PyTorch.* | 6 of 6 |$' table.md)" = 2 ] || {
    echo "FAIL: PyTorch's tokens differ"
    exit 1
  }
fi
rm -rf work
