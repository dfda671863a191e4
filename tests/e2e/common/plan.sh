# Sourced by the scripts of tests that open a plan of a model on a device.

# makePlan FOLDER cpu|cuda PLAN [FLAG...]: compiles FOLDER/model.onnx for the device, for cuda as
# $GPT2C_TEST_ARCH says (default: the GPU that is there). The test is skipped where there is no
# model or no such device; it fails where the plan cannot be made.
makePlan() {
  local arch=none
  [ "$2" = cuda ] && arch=${GPT2C_TEST_ARCH:-native}
  if [ ! -f "$1/model.onnx" ]; then
    echo "skipped: there is no $1/model.onnx (set GPT2C_SHARED_DIR)"
    exit 77
  fi
  gpt2c "$1/model.onnx" -o "$3" --gpu-arch=$arch "${@:4}" 2>err.txt
  case $? in
  0) ;;
  6) echo "skipped: $(grep '^error' err.txt)" && exit 77 ;;
  *) cat err.txt && exit 1 ;;
  esac
}
