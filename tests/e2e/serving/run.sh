#!/usr/bin/env bash
# run.sh NAME: NAME.py beside this over a plan of the sample, with what it needs, or skipped.
set -uo pipefail
. "$GPT2C_SOURCE_DIR/tests/skip.bash"
here=$GPT2C_SOURCE_DIR/tests/e2e/serving
command -v gpt2c-serve >/dev/null || skip "no gpt2c-serve: Boost's headers are missing"
more=()
case $1 in
replicas) command -v haproxy >/dev/null || skip "no haproxy (the package haproxy)" ;;
page)
  browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome) ||
    skip "no Chromium (the package chromium)"
  more=("$browser")
  ;;
metrics) command -v promtool >/dev/null || skip "no promtool (the package prometheus)" ;;
esac
gpt2c "$GPT2C_SOURCE_DIR/examples/sample/model.onnx" -o sample.plan --gpu-arch=none 2>/dev/null ||
  exit 1
timeout 300 python3 "$here/$1.py" sample.plan "${more[@]}"
rc=$?
rm -f sample.plan
exit $rc
