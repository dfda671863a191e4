#!/usr/bin/env bash
# gpt2c-compare on the GPU: every step of the sample's plans adds no more than its precision allows,
# in prefill and decode, for one sequence and several, at the sizes that have kernels of their own;
# another model's weights are found at their op.  gpt2c-run --self-test passes there.
set -uo pipefail
source "$GPT2C_SOURCE_DIR/tests/e2e/common/plan.sh"
sample=$GPT2C_SOURCE_DIR/examples/sample
export=$GPT2C_SOURCE_DIR/tests/data/gpt2-exports/torch2.6.0-plain-sdpa-dynamo-opset18/model.onnx
failed=0

fail() {
  echo "FAIL: $*"
  failed=1
}

for options in --precision=fp32 --precision=fp16 "--precision=fp16 --quantize=w8a16" \
  "--precision=fp16 --quantize=w8a8"; do
  # shellcheck disable=SC2086 # several options
  gpuPlan "$sample/model.onnx" sample.plan --max-batch=8 $options
  for call in "--function=prefill --tokens=7" "--function=prefill --tokens=100" \
    "--function=prefill --tokens=40 --batch=8" "--function=decode --tokens=33" \
    "--function=decode --tokens=33 --batch=3"; do
    # shellcheck disable=SC2086
    out=$(gpt2c-compare sample.plan --device=cuda $call 2>&1) || fail "$options $call: $out"
    echo "$options $call: $(tail -1 <<<"$out")"
    # Most values have a buffer: fewer would mean that buffers lost their values.
    [ "$(grep -cE '^ +[0-9]+ +[a-z]' <<<"$out")" -ge 15 ] || fail "$options $call: few values: $out"
  done
  gpt2c-run sample.plan --device=cuda --self-test || fail "$options: self-test"
done

# Against the export, whose nodes name what the kernels left in memory.
gpuPlan "$sample/model.onnx" sample.plan --precision=fp16
gpt2c-compare sample.plan --device=cuda --against="$sample/model.onnx" || fail "against the export"

# One bias that is another one: its op alone adds an error.
python3 "$GPT2C_SOURCE_DIR/tests/data/set_weight.py" "$export" other.onnx \
  transformer.h.1.mlp.c_fc.bias 5 0.5 || exit 1
gpuPlan "$export" sound.plan
gpuPlan other.onnx other.plan
out=$(gpt2c-compare other.plan --device=cuda --against=sound.plan 2>&1)
[ $? = 8 ] || fail "a changed weight is not found: $out"
[ "$(grep -c OVER <<<"$out")" = 1 ] || fail "more than one op adds an error: $out"
grep -q "worst channels: 5 (" <<<"$out" || fail "the channel of a changed weight: $out"

gpt2c-run sound.plan --device=cuda --self-test || fail "self-test of an fp32 plan"
rm -f ./*.plan other.onnx
exit $failed
