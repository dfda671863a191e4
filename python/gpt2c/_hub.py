"""From a folder of Hugging Face's to text."""
from __future__ import annotations

import importlib
import json
import os
import tempfile
from importlib import util
from pathlib import Path
from typing import Any, Optional

from ._compile import compile as compile_model
from ._errors import IoError, UsageError
from ._llm import LLM
from ._plan import PathLike

OPSET = 17


def from_pretrained(folder: PathLike, output: Optional[PathLike] = None, *, device: str = "auto",
                    threads: int = 0, seed: Optional[int] = None, **options: Any) -> LLM:
    """The LLM of a checkpoint folder, as save_pretrained writes it: config, weights, tokenizer.

    A folder with a `model.onnx` is compiled as it is; else the checkpoint is exported by PyTorch
    and Transformers, which must be installed for that. `output`: where the plan is kept; other
    options are those of compile(). Nothing is downloaded."""
    path = Path(os.fspath(folder))
    if not path.is_dir():
        raise IoError(f"'{path}' is no folder: give one with a checkpoint (config.json and "
                      "weights) or a model.onnx. Models are not downloaded; "
                      "'huggingface-cli download NAME --local-dir FOLDER' does that")
    options.setdefault("tokenizer", path if has_tokenizer(path) else None)
    model = path / "model.onnx"
    if model.is_file():
        return LLM(compile_model(model, output, **options), device, threads=threads, seed=seed)
    with tempfile.TemporaryDirectory(prefix="gpt2c-export-") as work:
        exported = export(path, work)
        return LLM(compile_model(exported, output, **options), device, threads=threads, seed=seed)


def has_tokenizer(path: Path) -> bool:
    return (path / "tokenizer.json").is_file() or (path / "merges.txt").is_file()


def export(checkpoint: Path, work: str) -> str:
    """Writes the checkpoint's model.onnx: token ids in, logits out, batch and length open."""
    config = checkpoint / "config.json"
    if not config.is_file():
        raise UsageError(f"'{checkpoint}' has neither config.json nor model.onnx: it is no "
                         "checkpoint of Transformers and no export")
    try:
        kind = json.loads(config.read_text(encoding="utf-8")).get("model_type", "")
    except (ValueError, AttributeError) as error:
        raise UsageError(f"'{config}' is no configuration of Transformers: {error}") from error
    needs_torch(checkpoint, kind)
    torch = importlib.import_module("torch")
    transformers = importlib.import_module("transformers")

    model = transformers.AutoModelForCausalLM.from_pretrained(
        checkpoint, torch_dtype=torch.float32, attn_implementation="eager", local_files_only=True)
    model.eval()
    model.config.use_cache = False

    class Logits(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids: Any) -> Any:
            return self.model(input_ids=input_ids, use_cache=False, return_dict=True).logits

    path = os.path.join(work, "model.onnx")
    axes = {0: "batch", 1: "seq"}
    with torch.no_grad():
        torch.onnx.export(Logits(), (torch.zeros((2, 8), dtype=torch.int64),), path,
                          input_names=["input_ids"], output_names=["logits"], opset_version=OPSET,
                          dynamic_axes={"input_ids": axes, "logits": axes}, dynamo=False)
    return path


def needs_torch(checkpoint: Path, kind: str) -> None:
    """An ImportError that says what to install, where something is missing."""
    missing = [name for name in ("torch", "transformers", "onnx") if util.find_spec(name) is None]
    if missing:
        raise ImportError(
            f"'{checkpoint}' is a checkpoint ({kind or 'of unknown type'}), which PyTorch and "
            f"Transformers export to ONNX; not installed: {', '.join(missing)}. Either\n"
            "  pip install torch transformers onnx\n"
            "where a PyTorch for the CPU is enough, or export it elsewhere, and compile that:\n"
            "  gpt2c.compile('model.onnx', tokenizer=FOLDER)")
