#!/usr/bin/env bash
# Every tool has a man page that names all of its options, and that groff has nothing to say about.
set -uo pipefail
. "$GPT2C_SOURCE_DIR/tests/skip.bash"
pages=$(dirname "$(command -v gpt2c)")/../generated/man
[ -d "$pages" ] || skip "this build makes no man pages"
failed=0
for tool in "$GPT2C_SOURCE_DIR"/tools/gpt2c*; do
  tool=$(basename "$tool" .cpp)
  command -v "$tool" >/dev/null || [ "$tool" != gpt2c-serve ] || continue # without Boost
  page=$pages/$tool.1
  [ -s "$page" ] || { echo "FAIL: no man page of $tool"; failed=1; continue; }
  for option in $("$tool" --help | sed -nE 's/^ +(-[-a-zA-Z0-9]+).* - .*/\1/p'); do
    grep -qF -- "${option//-/\\-}" "$page" || { echo "FAIL: no $option in $page"; failed=1; }
  done
  command -v groff >/dev/null || continue
  said=$(groff -man -ww -z -Kutf8 "$page" 2>&1)
  [ -z "$said" ] || { echo "FAIL: $page: $said"; failed=1; }
done
exit $failed
