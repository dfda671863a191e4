#!/usr/bin/env python3
"""Runs the tests of the package that Python finds; with GPT2C_TEST_DEVICE=cuda those of generation
and sessions, on the GPU. Exit code 77, and a line that says why, where what they need is not
there."""
import importlib.util
import os
import sys

FOLDER = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(FOLDER, "..", "..", "tests"))
from skip import skip  # noqa: E402

device = os.environ.get("GPT2C_TEST_DEVICE", "cpu")
needed = ["numpy", "pytest"] + (["mypy"] if device == "cpu" else [])
missing = [m for m in needed if importlib.util.find_spec(m) is None]
if missing:
    skip(f"Python has no {', '.join(missing)}; scripts/setup.sh --tests installs them")

import pytest  # noqa: E402

tests = [FOLDER]
if device != "cpu":
    import gpt2c
    from conftest import SAMPLE
    try:
        gpt2c.Session(gpt2c.compile(SAMPLE / "model.onnx", gpu_arch="native", verify="off"), device)
    except gpt2c.IncompatibleError as error:
        skip(str(error))
    tests = [os.path.join(FOLDER, f"test_{name}.py") for name in ("generate", "session",
                                                                  "interrupt")]
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", *tests, *sys.argv[1:]]))
