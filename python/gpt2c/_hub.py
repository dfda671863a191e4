"""From a folder of Hugging Face's to text."""
from __future__ import annotations

import importlib
import inspect
import json
import os
import shutil
import tempfile
from importlib import util
from pathlib import Path
from typing import Any, Callable, Optional

from ._compile import compile as compile_model
from ._errors import IoError, UnsupportedError, UsageError
from ._llm import LLM
from ._plan import PathLike

DYNAMO_OPSET = 18
TORCHSCRIPT_OPSET = 17
#: What the small files beside weights end in: of configurations, tokenizers and chat templates.
TEXTS = {".json", ".jinja", ".txt", ".model", ".tiktoken"}


def from_pretrained(folder: PathLike, output: Optional[PathLike] = None, *, device: str = "auto",
                    threads: int = 0, seed: Optional[int] = None, **options: Any) -> LLM:
    """The LLM of a checkpoint folder, as save_pretrained writes it: config, weights, tokenizer.

    A folder with a `model.onnx`, or with safetensors of an architecture that the compiler knows, is
    compiled as it is, with the LoRA adapter that lies beside it or is named as `adapter`; any other
    checkpoint is exported by PyTorch and Transformers, which must be installed for that. `output`:
    where the plan is kept; other options are those of compile().
    Nothing is downloaded."""
    path = Path(os.fspath(folder))
    if not path.is_dir():
        raise IoError(f"'{path}' is no folder: give one with a checkpoint (config.json and "
                      "weights) or a model.onnx. Models are not downloaded; "
                      "'huggingface-cli download NAME --local-dir FOLDER' does that")
    is_export = (path / "model.onnx").is_file()
    adapted = "adapter" in options or (path / "adapter_config.json").is_file()
    if is_export or ((path / "config.json").is_file() and any(path.glob("*.safetensors"))):
        try:
            return LLM(compile_model(path, output, **options), device, threads=threads, seed=seed)
        except UnsupportedError:
            if is_export or adapted or missing_packages():
                raise
    with tempfile.TemporaryDirectory(prefix="gpt2c-export-") as work:
        exported = export(path, work)
        copy_texts(path, work)
        return LLM(compile_model(exported, output, **options), device, threads=threads, seed=seed)


def copy_texts(checkpoint: Path, work: str) -> None:
    """What says which tokens there are, which end an answer and how to chat goes beside the
    model."""
    for file in checkpoint.iterdir():
        if file.suffix in TEXTS and file.is_file() and not file.name.endswith(".index.json"):
            shutil.copy(file, work)


def export(checkpoint: Path, work: str) -> str:
    """Writes the checkpoint's model.onnx: token ids in, logits out, batch and length open."""
    config = checkpoint / "config.json"
    if (checkpoint / "adapter_config.json").is_file():
        raise UsageError(f"'{checkpoint}' has an adapter, which changes a model: "
                         "from_pretrained(MODEL, adapter=FOLDER) merges it into safetensors of the "
                         "architectures that the compiler knows, any other by peft's "
                         "AutoPeftModelForCausalLM.from_pretrained(FOLDER).merge_and_unload()"
                         ".save_pretrained(MERGED)")
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

    # The type has another name in newer versions; all know this way to widen it.
    model = transformers.AutoModelForCausalLM.from_pretrained(
        checkpoint, attn_implementation="eager", local_files_only=True).float()
    model.config.use_cache = False

    class Logits(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids: Any) -> Any:
            return self.model(input_ids=input_ids, use_cache=False, return_dict=True).logits

    path = os.path.join(work, "model.onnx")
    logits = Logits()
    logits.eval()
    problems = []
    with torch.no_grad():
        for exporter in exporters(torch):
            try:
                exporter(torch, logits, path)
                return path
            except Exception as error:  # of any kind: exporters raise what their parts do
                problems.append(f"{exporter.__name__}: {str(error).strip()[:2000]}")
                for file in Path(work).iterdir():
                    file.unlink()
    raise UnsupportedError(
        f"PyTorch {torch.__version__} does not export '{checkpoint}' ({kind}) with Transformers "
        f"{transformers.__version__}; export it by other versions, and compile the model.onnx\n"
        + "\n".join(problems))


Exporter = Callable[[Any, Any, str], None]


def exporters(torch: Any) -> list[Exporter]:
    """The ways of this PyTorch, the best first: newer ones export what a program does (dynamo,
    where onnxscript is installed), older ones what a run of it did (TorchScript)."""
    dynamic = hasattr(getattr(getattr(torch, "export", None), "Dim", None), "DYNAMIC")
    return [dynamo, torchscript] if dynamic and util.find_spec("onnxscript") else [torchscript]


def dynamo(torch: Any, module: Any, path: str) -> None:
    open_size = torch.export.Dim.DYNAMIC
    torch.onnx.export(module, (torch.arange(16).reshape(2, 8),), path, dynamo=True,
                      opset_version=DYNAMO_OPSET, input_names=["input_ids"],
                      output_names=["logits"], dynamic_shapes=({0: open_size, 1: open_size},),
                      external_data=True, verbose=False)


def torchscript(torch: Any, module: Any, path: str) -> None:
    axes = {0: "batch", 1: "seq"}
    # Before 2.5 there was no other way, and no word for it.
    known = inspect.signature(torch.onnx.export).parameters.values()
    named = any(p.name == "dynamo" or p.kind is p.VAR_KEYWORD for p in known)
    options = {"dynamo": False} if named else {}
    torch.onnx.export(module, (torch.zeros((2, 8), dtype=torch.int64),), path,
                      input_names=["input_ids"], output_names=["logits"],
                      opset_version=TORCHSCRIPT_OPSET,
                      dynamic_axes={"input_ids": axes, "logits": axes}, **options)


def missing_packages() -> list[str]:
    """Of those that export checkpoints."""
    return [name for name in ("torch", "transformers", "onnx") if util.find_spec(name) is None]


def needs_torch(checkpoint: Path, kind: str) -> None:
    """An ImportError that says what to install, where something is missing."""
    missing = missing_packages()
    if missing:
        raise ImportError(
            f"'{checkpoint}' is a checkpoint ({kind or 'of unknown type'}), which PyTorch and "
            f"Transformers export to ONNX; not installed: {', '.join(missing)}. Either\n"
            "  pip install torch transformers onnx onnxscript\n"
            "where a PyTorch for the CPU is enough, or export it elsewhere, and compile that:\n"
            "  gpt2c.compile('model.onnx', tokenizer=FOLDER)")
