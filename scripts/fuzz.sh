#!/usr/bin/env bash
# scripts/fuzz.sh [--seconds=N] [--build=FOLDER] [TARGET...]: builds the libFuzzer targets of
# tests/fuzz (clang, address and undefined-behaviour sanitizers) and runs each for N seconds
# (default 20), from inputs in tests/fuzz/corpus/TARGET and those of other tests. What it finds
# goes to FOLDER/corpus/TARGET, an input that fails to FOLDER/found. The last line counts
# the targets: "N passed, N failed, N skipped".
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
seconds=20
build=build-fuzz
targets=()
for argument in "$@"; do
  case $argument in
  --seconds=*) seconds=${argument#*=} ;;
  --build=*) build=${argument#*=} ;;
  -*) echo "fuzz: no option '$argument'; see the head of this script" >&2; exit 1 ;;
  *) targets+=("$argument") ;;
  esac
done
if [ ${#targets[@]} = 0 ]; then
  for file in tests/fuzz/*Fuzz.cpp; do
    targets+=("$(basename "$file" .cpp)")
  done
fi
if ! command -v clang++-19 >/dev/null; then
  echo "skipped: no clang++-19 (scripts/setup.sh --dev)"
  echo "0 passed, 0 failed, ${#targets[@]} skipped"
  exit 0
fi
start=$SECONDS
[ -f "$build/build.ninja" ] || cmake --preset fuzz -B "$build" >/dev/null || exit 1
skipped=0
if ! grep -q '^build fuzz_HttpFuzz: phony' "$build/build.ninja"; then
  for i in "${!targets[@]}"; do
    [ "${targets[i]}" = HttpFuzz ] || continue
    unset "targets[i]"
    skipped=1
    echo "fuzz: HttpFuzz skipped: there are no headers of Boost or no GoogleTest"
  done
fi
[ ${#targets[@]} = 0 ] ||
  cmake --build "$build" --target "${targets[@]/#/fuzz_}" || exit 1
echo "fuzz: built in $((SECONDS - start)) s"

passed=0
failed=0
mkdir -p "$build/found"
for target in "${targets[@]}"; do
  corpus=$build/corpus/$target
  mkdir -p "$corpus"
  options=(-max_total_time="$seconds" -timeout=20 -rss_limit_mb=4096 -print_final_stats=1
    -artifact_prefix="$build/found/$target-")
  seeds=()
  [ ! -d "tests/fuzz/corpus/$target" ] || seeds=("tests/fuzz/corpus/$target")
  case $target in
  IrParserFuzz) seeds+=(tests/lit/ir tests/lit/passes) ;;
  OnnxFuzz)
    options+=(-dict=tests/fuzz/onnx.dict)
    seeds+=(tests/data/broken)
    ;;
  PipelineFuzz) options+=(-max_len=300 -len_control=0 -timeout=120) ;; # half a second each
  esac
  if "$build/bin/fuzz_$target" "${options[@]}" "$corpus" "${seeds[@]}" >"$build/$target.log" 2>&1
  then
    passed=$((passed + 1))
    echo "fuzz: $target: $(sed -n 's/^stat::number_of_executed_units: *//p' "$build/$target.log")" \
      "inputs in $seconds s, none fails"
  else
    failed=$((failed + 1))
    echo "fuzz: $target FAILED; the input is in $build/found"
    tail -40 "$build/$target.log"
  fi
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
