#!/usr/bin/env bash
# scripts/sanitized.sh [all]: builds the asan preset and runs its tests: of what reads files that
# others made, which are the frontend, the IR and the runtime. all: of everything that is
# sanitized, the server and the FileCheck cases too, which takes several times as long. The last
# line counts them.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
libraries='ir|frontend|runtime'
targets=(unit_ir unit_frontend unit_runtime)
tests=(-R "^unit[.]($libraries)[.]")
if [ "${1:-}" = all ]; then
  targets=(unit_all suite_ops gpt2c_tools_all)
  tests=(-L '^(unit|lit)$')
fi
# Without the tests that only compile kernels: they are long and LeakSanitizer often crashes while
# the threads of NVRTC end. Without those that go over the same code many times more, or are about
# how long something takes.
without='^suite[.](op_kernels|plans_neutral)|NvrtcArch|CompilesForEveryArchitecture'
without+='|AnyPassLeftOut|EveryPassTwice|ClassOfEveryCodePoint|DrawsFollowTheDistribution'
without+='|StreamedOrNotTheTextIsThatOfTheIds|RowProduct[.](ARowHas|EveryLevel)|AreWhatIntegersAre'
without+='|WorkIsBounded|LinearishTime|TokenizerVectorsTest[.]WholeTexts'

# LLVM gives the thread that first asks for it a signal stack of its own, which AddressSanitizer
# must not unmap. Reports go to files, as FileCheck would swallow those of a tool it reads from.
run() {
  local reports=$PWD/build-asan/report
  rm -f "$reports".*
  ASAN_OPTIONS=detect_container_overflow=0:use_sigaltstack=0:log_path=$reports \
    UBSAN_OPTIONS=print_stacktrace=1:log_path=$reports \
    scripts/test.sh build-asan "${tests[@]}" -E "$without" && return
  cat "$reports".* 2>/dev/null
  return 1
}

cmake --preset asan >/dev/null && cmake --build build-asan --target "${targets[@]}" || exit
run && exit
# LeakSanitizer itself can crash while threads of NVRTC end; only then are they run again.
grep -qs 'LeakSanitizer has encountered a fatal error' build-asan/report.* && run
