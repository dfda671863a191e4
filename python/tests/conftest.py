"""The sample model as a plan for the CPU, compiled once."""
import json
import os
from pathlib import Path
from typing import Any, Iterator

import pytest

import gpt2c

ROOT = Path(os.environ.get("GPT2C_SOURCE_DIR", Path(__file__).resolve().parents[2]))
SAMPLE = ROOT / "examples" / "sample"


@pytest.fixture(scope="session")
def plan() -> Iterator[gpt2c.Plan]:
    yield gpt2c.compile(SAMPLE / "model.onnx", gpu_arch="none")


@pytest.fixture(scope="session")
def llm(plan: gpt2c.Plan) -> gpt2c.LLM:
    return gpt2c.LLM(plan, "cpu", threads=1)


@pytest.fixture(scope="session")
def golden() -> Any:
    return json.loads((SAMPLE / "golden.json").read_text())
