#!/usr/bin/env bash
# scripts/test.sh [BUILD] [ctest arguments]: runs the tests of a build folder. The last line counts
# them, every FileCheck case for itself: "N passed, N failed, N skipped". Fails when a test fails or
# when nothing ran.
set -uo pipefail
build=${1:-build}
[ $# -gt 0 ] && shift
if [ ! -f "$build/CTestTestfile.cmake" ]; then
  echo "test: $build is no build folder with tests; run 'make build' first" >&2
  exit 1
fi
build=$(cd "$build" && pwd)
# Tests run side by side: more threads for the matrix products of each would wait for one another.
export OPENBLAS_NUM_THREADS=${OPENBLAS_NUM_THREADS:-1}
rm -f "$build/ctest.xml" "$build/lit.xml"
ctest --test-dir "$build" --output-on-failure -j "$(nproc)" --output-junit "$build/ctest.xml" "$@" |
  grep -vE '^ +Start +[0-9]+: |Test +#[0-9]+: .* Passed +[0-9.]+ sec$'
exec python3 "$(dirname "$0")/count-tests.py" "$build/ctest.xml" "$build/lit.xml"
