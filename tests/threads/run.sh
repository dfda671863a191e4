#!/usr/bin/env bash
# run.sh PROGRAM [RACE]: runs PROGRAM under ThreadSanitizer; skipped where the system gives it no
# memory as it needs it. With RACE (a program that races) the sanitizer has to find that first.
set -uo pipefail
. "$(dirname "$0")/../skip.bash"
[ -x "${1:-}" ] || skip "this build has no ThreadSanitizer"
sanitized() { # random addresses leave ThreadSanitizer no room on some kernels
  TSAN_OPTIONS=exitcode=66 timeout 120 setarch "$(uname -m)" -R "$@" 2>&1
}
out=$(sanitized "$2")
rc=$?
if grep -q "unexpected memory mapping\|Operation not permitted" <<<"$out"; then
  skip "ThreadSanitizer cannot run here: $(tail -n 1 <<<"$out")"
fi
[ $rc = 66 ] && grep -q "data race" <<<"$out" || { echo "FAIL: a race is not found: $out"; exit 1; }
out=$(sanitized "$1")
rc=$?
echo "$out"
exit $rc
