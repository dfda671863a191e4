"""The sample model as a plan, compiled once: for the CPU, or for the GPU that GPT2C_TEST_DEVICE
names."""
import json
import os
from pathlib import Path
from typing import Any, Iterator

import pytest

import gpt2c

ROOT = Path(os.environ.get("GPT2C_SOURCE_DIR", Path(__file__).resolve().parents[2]))
SAMPLE = ROOT / "examples" / "sample"
DEVICE = os.environ.get("GPT2C_TEST_DEVICE", "cpu")
ARCH = "none" if DEVICE == "cpu" else "native"


@pytest.fixture(scope="session")
def plan() -> Iterator[gpt2c.Plan]:
    yield gpt2c.compile(SAMPLE / "model.onnx", gpu_arch=ARCH)


@pytest.fixture(scope="session")
def llm(plan: gpt2c.Plan) -> gpt2c.LLM:
    return gpt2c.LLM(plan, DEVICE, threads=1)


@pytest.fixture(scope="session")
def golden() -> Any:
    return json.loads((SAMPLE / "golden.json").read_text())
