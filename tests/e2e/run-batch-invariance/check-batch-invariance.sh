#!/usr/bin/env bash
# check-batch-invariance.sh FOLDER cpu|cuda REQUESTS [FLAG...]: compiles FOLDER/model.onnx with
# --batch-invariant and the flags, and plays random requests; log probabilities have the bits of the
# request alone. On the CPU device @prefill and @decode have them, too, where there are no int8
# activations; and a plan without the flag does not, so that the test could fail.
set -uo pipefail
. "$GPT2C_SOURCE_DIR/tests/e2e/common/plan.sh"
model=$1
device=$2
requests=$3
shift 3
compile() { # NAME FLAG...
  makePlan "$model" "$device" "$1.plan" --verify=off --tokenizer=none "${@:2}"
}
compile invariant --batch-invariant "$@"
e2e_batch_invariance invariant.plan "$device" "$requests" || exit 1
if [ "$device" = cpu ]; then
  # With int8 activations @decode is no @extend: it multiplies floats.
  case "$*" in *w8a8*) ;; *) e2e_rows invariant.plan cpu 0 || exit 1 ;; esac
  compile plain "$@"
  if e2e_batch_invariance plain.plan cpu 30; then
    echo "a plan without --batch-invariant has the same bits: the test shows nothing"
    exit 1
  fi
fi
rm -f ./*.plan
