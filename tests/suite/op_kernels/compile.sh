#!/usr/bin/env bash
# compile.sh SUITE [OPTION...]: the kernels of all op cases, in one form of each, go through NVRTC's
# front end. On a GPU suite.op_kernels compiles them whole, in both.
set -uo pipefail
source "$GPT2C_SOURCE_DIR/tests/e2e/front-end.bash"
useFrontEnd
exec "$1" --compile-only --arch=sm_90a "${@:2}"
