#!/usr/bin/env bash
# scripts/check-test-names.sh [BUILD]: every test of a build folder, `build` unless it is given, has
# a name that says what it is, one word without the bytes or the address of a parameter; so has
# every parameter where GoogleTest lists it, as it does when a test fails.
set -uo pipefail
build=${1:-build}
names=$(ctest --test-dir "$build" -N | sed -n 's/^ *Test *#[0-9]*: //p')
[ -n "$names" ] || { echo "check-test-names: no tests in $build"; exit 1; }
bad=$(grep -vE '^[][A-Za-z0-9_.<>:,/+-]+$|/[0-9]+$' <<<"$names")
for program in "$build"/bin/unit_* "$build"/bin/suite_ops; do
  bad+=$("$program" --gtest_list_tests |
    sed -nE "/(-byte object <|= 0x[0-9a-f]+|\/[0-9]+  #)/s|^|$(basename "$program"):|p")
done
if [ -n "$bad" ]; then
  echo "check-test-names: tests without a name of their own:"
  echo "$bad"
  exit 1
fi
wc -l <<<"$names"
