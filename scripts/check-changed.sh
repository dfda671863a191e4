#!/usr/bin/env bash
# scripts/check-changed.sh BUILD [BASE]: clang-format over all sources, clang-tidy over the C++
# files changed since BASE (default: where this branch left origin's main, else the previous
# commit). BUILD has the headers that a build generates, for clang-tidy.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
build=$1
base=${2:-}

newest() {
  local version
  for version in -19 -18 -20 -17 -16 ""; do
    command -v "$1$version" && return
  done
  return 1
}
if ! format=$(newest clang-format) || ! tidy=$(newest clang-tidy); then
  echo "check-changed: clang-format or clang-tidy not found: scripts/setup.sh --dev" >&2
  exit 1
fi

status=0
git ls-files -z '*.c' '*.cpp' '*.h' '*.hpp' '*.cuh' |
  xargs -0 "$format" --dry-run --Werror || status=1

if [ -z "$base" ]; then
  base=$(git merge-base HEAD origin/main 2>/dev/null)
  [ -n "$base" ] && [ "$base" != "$(git rev-parse HEAD)" ] ||
    base=$(git rev-parse -q --verify HEAD~1)
fi
[ -n "$base" ] || base=$(git hash-object -t tree /dev/null)
mapfile -t files < <(git diff --name-only --diff-filter=d "$base" -- '*.cpp')
echo "check-changed: ${#files[@]} .cpp files since ${base:0:12}"
[ ${#files[@]} -gt 0 ] || exit $status

# How each file is compiled alone: BUILD may compile several at a time.
commands=$build/tidy
cmake --preset release -B "$commands" -DGPT2C_UNITY=OFF -DGPT2C_PCH=OFF -DGPT2C_PYTHON=ON \
  >/dev/null || exit 1
sed -i "s#/$commands/generated#/$build/generated#g" "$commands/compile_commands.json"

units=()
for file in "${files[@]}"; do
  if grep -q "/$file\"" "$commands/compile_commands.json"; then
    units+=("$file")
  fi
done
if [ ${#units[@]} -gt 0 ]; then
  # What is found before the time is over counts; what the end of it kills does not.
  found=$(mktemp)
  # shellcheck disable=SC2016 # for the inner shell
  printf '%s\n' "${units[@]}" |
    timeout "${TIDY_SECONDS:-300}" xargs -P "$(nproc)" -n 1 \
      sh -c '"$@"; code=$?; [ $code = 0 ] || [ $code -gt 128 ] || echo "$0" >>"$0"' "$found" \
      "$tidy" --quiet --extra-arg=-Wno-unknown-warning-option --extra-arg=-Wno-ignored-gch \
      --extra-arg=-Wno-deprecated-declarations -p "$commands" \
      2> >(grep -vE 'warnings? generated|^Suppressed|^Use -' >&2)
  case $? in
    0) ;;
    124) echo "check-changed: clang-tidy stopped after ${TIDY_SECONDS:-300} s; the rest is open" ;;
    *) status=1 ;;
  esac
  [ ! -s "$found" ] || status=1
  rm -f "$found"
fi
exit $status
