#!/usr/bin/env bash
# scripts/nightly.sh [BUILD] [SEED]: what is too long for every change. Tests of which every change
# runs a part or none (GPT2C_NIGHTLY, `ctest -C Nightly`), the wheel of the Python package in an
# environment of its own (scripts/check-wheel.sh), checkpoints by the versions of PyTorch that
# people have (scripts/check-torch.sh), both commands of the README on machines that have nothing
# (scripts/check-bare.sh), a build without grammars, everything that can be sanitized
# (scripts/sanitized.sh all), ten minutes of each fuzz target (scripts/fuzz.sh), and, drawn from
# SEED, which by default is the number of the day, answers by 1,000 JSON schemas
# (tests/e2e/run-grammars) and 2,000 graphs with a changed meaning against ONNX Runtime
# (tests/meaning). Failures stay in BUILD/nightly.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build}
seed=${2:-$(($(date +%s) / 86400))}
if [ ! -x "$build/bin/gpt2c" ]; then
  echo "nightly: there is no $build/bin/gpt2c; run 'make build' first" >&2
  exit 1
fi
PATH=$(cd "$build" && pwd)/bin:$PATH
PYTHONPATH=${PYTHONPATH:+$PYTHONPATH:}$PWD/.deps/python
export PATH PYTHONPATH
failed=0
GPT2C_NIGHTLY=1 scripts/test.sh "$build" -C Nightly \
  -R '^emulated[.]|^e2e[.](compile-(models|int8)|smollm2|serving)|AnyPassLeft|PipelineProperty' ||
  failed=1
scripts/check-wheel.sh || failed=1
scripts/check-torch.sh "$build" || failed=1
scripts/check-bare.sh || failed=1
(
  cmake --preset release -B build-no-grammars -DGPT2C_XGRAMMAR=OFF >/dev/null &&
    cmake --build build-no-grammars --target gpt2c-run unit_runtime &&
    { ! grep -q '^build unit_server: phony' build-no-grammars/build.ninja ||
      cmake --build build-no-grammars --target unit_server gpt2c-serve; } &&
    scripts/test.sh build-no-grammars -R '^unit[.](runtime|server)[.]'
) || failed=1
scripts/sanitized.sh all || failed=1
scripts/fuzz.sh --seconds="${FUZZ_SECONDS:-600}" || failed=1
echo "nightly: seed $seed"
mkdir -p "$build/nightly"
(
  export GPT2C_SOURCE_DIR=$PWD
  cd "$build/nightly"
  bash "$GPT2C_SOURCE_DIR/tests/e2e/run-grammars/check-grammars.sh" \
    "$GPT2C_SOURCE_DIR/examples/sample" cpu "${SCHEMAS:-1000}" "$seed"
) || [ $? = 77 ] || failed=1
python3 tests/meaning/fuzz_meaning.py --seed="$seed" --count="${COUNT:-2000}" \
  --out="$build/nightly" --keep-failures \
  --log="$build/nightly/cases.jsonl" || failed=1
python3 tests/sizes/sizes.py --runner="$build/bin/size_runner" --seed="$seed" \
  --count="${SIZES:-5000}" --keep="$build/nightly" || failed=1
exit $failed
