#!/usr/bin/env bash
# run.sh NAME: NAME.py beside this over a plan of the sample, with what it needs, or skipped.
set -uo pipefail
. "$GPT2C_SOURCE_DIR/tests/skip.bash"
here=$GPT2C_SOURCE_DIR/tests/e2e/serving
has() { command -v "$1" >/dev/null; }
lacks=()
more=()
case $1 in
metrics) has promtool || lacks+=("promtool (the package prometheus)") ;;
replicas) has haproxy || lacks+=("haproxy (the package haproxy)") ;;
page)
  more=("$(command -v chromium || command -v chromium-browser || command -v google-chrome)") ||
    lacks+=("Chromium (the package chromium)")
  ;;
rayserve)
  python3 -c 'import ray.serve' 2>/dev/null ||
    lacks+=("ray for Python (pip install 'ray[serve]')")
  ;;
harness)
  python3 -c 'import lm_eval, transformers' 2>/dev/null ||
    lacks+=("lm_eval for Python (pip install 'lm_eval[api]' transformers)")
  ;;
esac
has gpt2c-serve || lacks+=("gpt2c-serve: Boost's headers are missing")
[ ${#lacks[@]} = 0 ] || skip "no ${lacks[0]}"
gpt2c "$GPT2C_SOURCE_DIR/examples/sample/model.onnx" -o sample.plan --gpu-arch=none 2>/dev/null ||
  exit 1
timeout 300 python3 "$here/$1.py" sample.plan "${more[@]}"
rc=$?
rm -f sample.plan
exit $rc
