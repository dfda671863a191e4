# For scripts that compile kernels. useFrontEnd: from here on gpt2c has NVRTC read and instantiate
# every kernel, and leaves out code generation, which is most of the time; what does not compile is
# an error as ever. useNvrtc ends it. The script ends as skipped where there is no NVRTC.
. "$GPT2C_SOURCE_DIR/tests/e2e/common/plan.sh"
useFrontEnd() {
  local said library
  said=$(gpt2c "$GPT2C_SOURCE_DIR/tests/data/broken/sound/model.onnx" -o none.plan \
    --gpu-arch=sm_20 --verify=off 2>&1)
  library=$(sed -n 's/^error: NVRTC [0-9.]* (\(.*\)) cannot compile for sm_20.*/\1/p' <<<"$said")
  skipWithoutNvrtc "$said"
  [ -f "$library" ] || { echo "FAIL: which NVRTC is it? $said"; exit 1; }
  # Headers that are in another place than beside the library: then all of NVRTC it is.
  [ -f "${library%/*/*}/include/cuda_fp16.h" ] || return 0
  rm -rf front-end
  mkdir -p front-end
  ln -s "${library%/*/*}/include" front-end/include
  ln -s "$(dirname "$(command -v gpt2c)")/../nvrtc-front/lib" front-end/lib
  export GPT2C_CUDA_PATH=$PWD/front-end GPT2C_REAL_NVRTC=$library
}

useNvrtc() { unset GPT2C_CUDA_PATH GPT2C_REAL_NVRTC; }
