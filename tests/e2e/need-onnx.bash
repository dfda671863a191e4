# For scripts that make models. needOnnx: numpy and onnx are at hand, those of scripts/setup.sh
# --dev before others; else the script ends as skipped.
needOnnx() {
  export PYTHONPATH=$GPT2C_SOURCE_DIR/.deps/python${PYTHONPATH:+:$PYTHONPATH}
  python3 -c "import numpy, onnx" 2>/dev/null && return
  echo "skipped: there is no numpy or onnx (scripts/setup.sh --dev)"
  exit 77
}
