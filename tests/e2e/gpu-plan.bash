# For scripts of GPU tests: gpuPlan MODEL PLAN [OPTION...] compiles for the GPU of this machine, and
# ends the script as skipped where there is none, as failed where that fails otherwise.
gpuPlan() {
  local model=$1 plan=$2 why
  shift 2
  why=$(gpt2c "$model" -o "$plan" --gpu-arch=native "$@" 2>&1)
  case $? in
  0) ;;
  6)
    echo "skipped: $(grep '^error' <<<"$why")"
    exit 77
    ;;
  *)
    echo "FAIL: $why"
    exit 1
    ;;
  esac
}
