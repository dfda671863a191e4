# For scripts that make models. needOnnx: numpy and onnx are at hand, those of scripts/setup.sh
# --tests before others; else the script ends as skipped.
. "$GPT2C_SOURCE_DIR/tests/skip.bash"
needOnnx() {
  export PYTHONPATH=$GPT2C_SOURCE_DIR/.deps/python${PYTHONPATH:+:$PYTHONPATH}
  python3 -c "import numpy, onnx" 2>/dev/null ||
    skip "there is no numpy or onnx (scripts/setup.sh --tests)"
}
