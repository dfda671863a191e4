# Sourced by the scripts of tests that make a plan for a device.
. "$GPT2C_SOURCE_DIR/tests/skip.bash"

# compilePlan ARGUMENT...: gpt2c with the arguments. The script ends as skipped where this machine
# has no GPU or no NVRTC for them, as failed where the plan cannot be made.
compilePlan() {
  local said code=0
  said=$(gpt2c "$@" 2>&1) || code=$?
  [ $code != 0 ] || return 0
  skipWithoutNvrtc "$said"
  [ $code != 6 ] || skip "$(grep '^error' <<<"$said")"
  echo "FAIL: $said"
  exit 1
}

# skipWithoutNvrtc OUTPUT: ends the script as skipped where gpt2c said that it finds no NVRTC.
skipWithoutNvrtc() {
  ! grep -q "^error: no usable NVRTC" <<<"$1" || skip "$(grep '^error' <<<"$1")"
}

# needModel FOLDER: the script ends as skipped where there is no model.
needModel() {
  [ -f "$1/model.onnx" ] || skip "there is no $1/model.onnx (set GPT2C_SHARED_DIR)"
}

# makePlan FOLDER cpu|cuda PLAN [FLAG...]: compiles FOLDER/model.onnx for the device, for cuda as
# $GPT2C_TEST_ARCH says (default: the GPU that is there).
makePlan() {
  local arch=none
  [ "$2" = cuda ] && arch=${GPT2C_TEST_ARCH:-native}
  needModel "$1"
  compilePlan "$1/model.onnx" -o "$3" --gpu-arch=$arch "${@:4}"
}

# gpuPlan MODEL PLAN [FLAG...]: compiles for the GPU of this machine.
gpuPlan() { compilePlan "$1" -o "$2" --gpu-arch=native "${@:3}"; }
