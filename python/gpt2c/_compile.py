"""Plans from models, by the compiler in the package; and what plans are worth."""
from __future__ import annotations

import json
import math
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional, Sequence, Union

from ._errors import UsageError
from ._plan import PathLike, Plan, open_plan, token_ids
from ._tools import run_tool


def compile(
        model: PathLike, output: Optional[PathLike] = None, *, precision: Optional[str] = None,
        quantize: Optional[str] = None, kv_type: Optional[str] = None,
        max_batch: Optional[int] = None, max_context: Optional[int] = None,
        gpu_arch: Union[str, Sequence[str], None] = None, tokenizer: Optional[PathLike] = None,
        calibration: Optional[PathLike] = None, adapter: Optional[PathLike] = None,
        verify: Optional[str] = None, optimize: Optional[int] = None, flags: Sequence[str] = (),
        verbose: bool = False) -> Plan:
    """Compiles an ONNX export, or the folder of one or of a checkpoint, into a plan and opens it.

    Each argument is the flag of the tool gpt2c of its name, `optimize` is -O, and `flags` holds any
    others as the command line has them. Without `output` the plan is a temporary file that goes
    when the Plan does. What was fused and what was not is in `plan.remarks`, what the compiler said
    in `plan.log`; with `verbose` it goes to stderr, too. The plan is written whole or not at all.

    Raises the class of gpt2c's exit code: InvalidOnnxError, UnsupportedError and so on."""
    folder = None
    if output is None:
        folder = tempfile.TemporaryDirectory(prefix="gpt2c-")
        output = os.path.join(folder.name, Path(os.fspath(model)).stem + ".plan")
    archs = arch_list(gpu_arch)
    named = {"precision": precision, "quantize": quantize, "kv-type": kv_type,
             "max-batch": max_batch, "max-context": max_context, "gpu-arch": archs,
             "tokenizer": path_of(tokenizer), "calibration": path_of(calibration),
             "adapter": path_of(adapter), "verify": verify}
    arguments = [f"--{name}={value}" for name, value in named.items() if value is not None]
    if optimize is not None:
        arguments.append(f"-O{optimize}")
    _, log = run_tool("gpt2c", [os.fspath(model), "-o", os.fspath(output), *arguments, *flags],
                      verbose)
    plan = Plan(output, verify_weights=False)  # it was written just now
    plan.log = log
    plan._folder = folder
    return plan


def arch_list(archs: Union[str, Sequence[str], None]) -> Optional[str]:
    return archs if archs is None or isinstance(archs, str) else ",".join(archs)


def path_of(path: Optional[PathLike]) -> Optional[str]:
    return None if path is None else os.fspath(path)


@dataclass(frozen=True)
class Evaluation:
    """How well a plan predicts a text; against a baseline plan also what it lost."""

    perplexity: float  #: infinity where a row of logits is not finite
    nll: float  #: mean, in nats
    tokens: int  #: scored
    window: int
    stride: int
    device: str
    precision: str
    details: dict[str, Any]  #: all that gpt2c-eval says of the plan (-o json)


def evaluate(plan: Union[Plan, PathLike], text: Union[str, "os.PathLike[str]", Sequence[int]], *,
             window: Optional[int] = None, stride: Optional[int] = None,
             max_tokens: Optional[int] = None, batch: Optional[int] = None,
             baseline: Union[Plan, PathLike, None] = None, device: str = "auto",
             threads: int = 0) -> Evaluation:
    """Perplexity of a plan over a text, as gpt2c-eval computes it.

    `text`: a str is the text itself, a pathlib.Path a file, a sequence of ints token ids.
    <|endoftext|> separates documents."""
    opened = open_plan(plan)
    numbers = {"window": window, "stride": stride, "max-tokens": max_tokens,
               "threads": threads or None}
    with tempfile.TemporaryDirectory(prefix="gpt2c-") as folder:
        arguments = [opened.path, f"--text={text_file(text, folder)}", "-o", "json",
                     f"--device={device}"]
        arguments += [f"--{name}={value}" for name, value in numbers.items() if value is not None]
        if batch is not None:
            arguments.append(f"-b={batch}")
        if baseline is not None:
            arguments.append(f"--baseline={open_plan(baseline).path}")
        output, _ = run_tool("gpt2c-eval", arguments)
    report = json.loads(output)
    row = report["plans"][-1]
    return Evaluation(number_of(row["perplexity"]), number_of(row["nll"]), row["tokens"],
                      report["window"], report["stride"], row["device"], row["precision"], row)


def number_of(value: Optional[float]) -> float:
    """JSON has null for what is not finite."""
    return math.inf if value is None else float(value)


def text_file(text: Any, folder: str) -> str:
    """A file with the text, or with ids."""
    if isinstance(text, os.PathLike):
        return os.fspath(text)
    if isinstance(text, str):
        if not text:
            raise UsageError("the text is empty")
        path = os.path.join(folder, "text")
        with open(path, "w", encoding="utf-8", newline="") as file:
            file.write(text)
        return path
    path = os.path.join(folder, "text.ids")
    with open(path, "w", encoding="ascii") as file:
        file.write("\n".join(map(str, token_ids(text))))
    return path
