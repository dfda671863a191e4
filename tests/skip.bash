# For scripts of tests. skip WHY ends the script as skipped: exit code 77 and, of WHY's first line,
# "skipped: WHY". WHY is what is missing here and, where there is one, the way to get it. As a
# program, `bash skip.bash WHY`, this is a test that is always skipped.
skip() {
  [ -z "${GPT2C_SKIP_LOG:-}" ] || # tests/skips asks from where
    echo "$(realpath "${BASH_SOURCE[1]:-$0}"):${BASH_LINENO[0]}" >>"$GPT2C_SKIP_LOG"
  echo "skipped: ${1%%$'\n'*}"
  exit 77
}
[ "${BASH_SOURCE[0]}" != "$0" ] || skip "$1"
