#!/usr/bin/env bash
# Checks the direction of includes between folders (the link dependencies of static libraries alone
# do not enforce it).
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
bad=0

# allow FOLDER REGEX [GREP-OPTION...]: every quoted include of a repository folder in FOLDER matches
# REGEX.
allow() {
  local hits
  hits=$(grep -rnE '#include "(frontend|ir|passes|schedule|verify|codegen|cpu|runtime|server|templates|tools|tests)/' \
    "$1" "${@:3}" | grep -vE "#include \"($2)/")
  [ -z "$hits" ] || { echo "check-layers: $1 may include only $2:"; echo "$hits"; bad=1; }
}

# forbid FOLDER REGEX: no include in FOLDER matches REGEX.
forbid() {
  local hits
  hits=$(grep -rnE "#include [<\"]($2)" "$1")
  [ -z "$hits" ] || { echo "check-layers: forbidden in $1:"; echo "$hits"; bad=1; }
}

allow templates 'templates|codegen|schedule|ir|runtime' --exclude='*Test.cpp'
# The cases of a kernel stand beside it, over the harness of suite_kernels.
allow templates 'templates|codegen|schedule|ir|runtime|tests/suite/kernels' --include='*Test.cpp'
# Device code includes device code alone, and the persistent step's records, which hosts share; what
# kernels are written with knows no kernel.
device=$(grep -rnE '#include "' templates --include='*.cuh' |
  grep -vE '#include "templates/([^"]*\.cuh|decode_step/(common/((records|ring)\.h|configs\.def)|shares/shares\.h))"')
[ -z "$device" ] || { echo "check-layers: a .cuh includes only those of templates:"; echo "$device"; bad=1; }
steps=$(grep -rnE '#include "templates/' codegen | grep -vE '^codegen/(Codegen\.cpp|driver/[^:]*):|templates/Embedded\.h"')
[ -z "$steps" ] || { echo "check-layers: of codegen, Codegen.cpp and driver alone know kernels:"; echo "$steps"; bad=1; }
allow runtime 'runtime'
allow ir 'ir'
allow frontend 'frontend|ir'
allow passes 'passes|ir'
allow schedule 'schedule|ir'
allow verify 'verify|ir'
allow codegen 'codegen|schedule|ir|runtime|templates'
allow cpu 'cpu|ir|runtime'
allow python 'cpu|runtime'
allow server 'runtime|server'
# Tools that only run plans are over the runtime, as what they share is.
allow tools/runtime-common 'runtime|tools/runtime-common'
allow tools/gpt2c-run 'runtime|tools/(runtime-common|gpt2c-run)'
allow tools/gpt2c-bench 'runtime|tools/(runtime-common|gpt2c-bench)'
allow tools/gpt2c-eval 'runtime|tools/runtime-common'
allow tools/gpt2c-serve 'runtime|server|tools/(runtime-common|gpt2c-serve)'
for tool in runtime-common gpt2c-run gpt2c-bench gpt2c-eval gpt2c-serve; do
  forbid "tools/$tool" 'llvm/|onnx|nvrtc|google/protobuf|cuda\.h|cuda_runtime'
done
forbid server 'llvm/|onnx|nvrtc|google/protobuf|cuda\.h|cuda_runtime'
forbid runtime 'llvm/|onnx|nvrtc|google/protobuf|cuda\.h|cuda_runtime'
forbid ir 'onnx|cuda|nvrtc|plan_generated|google/protobuf'
forbid passes 'onnx|cuda|nvrtc|plan_generated|google/protobuf'
forbid schedule 'onnx|cuda|nvrtc|plan_generated|google/protobuf'
forbid verify 'onnx|cuda|nvrtc|plan_generated|google/protobuf'
forbid codegen 'onnx|google/protobuf'
forbid cpu 'onnx|cuda|nvrtc|google/protobuf'
forbid python 'llvm/|onnx|nvrtc|google/protobuf|cuda\.h|cuda_runtime'
exit $bad
