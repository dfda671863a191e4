"""Compiling, judging, and the way from a checkpoint."""
import contextlib
import importlib.machinery
import importlib.util
import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gpt2c
from conftest import SAMPLE
from gpt2c import _hub
from gpt2c._hub import missing_packages

GREEDY = gpt2c.SamplingParams(temperature=0, max_tokens=4)


def test_a_plan_tells_what_it_is(plan: gpt2c.Plan) -> None:
    assert (plan.precision, plan.vocab_size, plan.max_batch, plan.max_context) == \
        ("fp32", 4096, 8, 512)
    assert plan.compiler_version == gpt2c.__version__ and not plan.has_gpu_code
    assert "--precision=fp32" in plan.flags and "half precision" in plan.log
    assert plan.eos_token_id == 0 and plan.tokenizer
    assert plan.tokenizer.vocab_size == 4096
    assert plan.path in repr(plan)
    assert all(r.message and r.stage for r in plan.remarks)


def test_output_and_flags(tmp_path: Path) -> None:
    path = tmp_path / "sample.plan"
    plan = gpt2c.compile(SAMPLE / "model.onnx", path, precision="fp16", max_context=64,
                         max_batch=2, gpu_arch=["none"], verify="off", flags=["--decode=graph"])
    assert path.stat().st_size == plan.file_bytes
    assert (plan.precision, plan.max_batch, plan.max_context) == ("fp16", 2, 64)
    assert plan.remarks == gpt2c.Plan(path).remarks
    bare = gpt2c.compile(SAMPLE / "model.onnx", gpu_arch="none", verify="off", tokenizer="none")
    assert bare.tokenizer is None


def test_bfloat16_generates_as_the_plan_says(tmp_path: Path) -> None:
    plan = gpt2c.compile(SAMPLE / "model.onnx", tmp_path / "bf16.plan", precision="bf16",
                         gpu_arch="none", max_context=64)
    assert plan.precision == "bf16" and "--precision=bf16" in plan.flags
    half = gpt2c.compile(SAMPLE / "model.onnx", precision="fp16", gpu_arch="none", max_context=64)
    assert abs(plan.file_bytes - half.file_bytes) < half.file_bytes / 10
    golden = json.loads((SAMPLE / "golden.json").read_text())
    out = gpt2c.LLM(plan, device="cpu").generate(golden["prompt"], GREEDY)
    assert out[0].outputs[0].token_ids == golden["greedy"][:4]  # no near ties there


def test_a_temporary_plan_goes_with_its_object() -> None:
    plan = gpt2c.compile(SAMPLE / "model.onnx", gpu_arch="none", verify="off")
    path = plan.path
    session = gpt2c.Session(plan, "cpu")
    del plan
    assert os.path.exists(path)  # the session keeps it
    del session
    assert not os.path.exists(path)


def test_evaluate(plan: gpt2c.Plan, tmp_path: Path) -> None:
    text = "She opened the door and went in. It was dark, and nobody was there. " * 8
    (tmp_path / "text").write_text(text)
    report = gpt2c.evaluate(plan, text, window=32, device="cpu")
    assert report == gpt2c.evaluate(plan, tmp_path / "text", window=32, device="cpu")
    assert plan.tokenizer
    ids = plan.tokenizer.encode(text)
    assert report == gpt2c.evaluate(plan, ids, window=32, device="cpu")
    shown = subprocess.run([gpt2c.tool_path("gpt2c-eval"), plan.path, "--device=cpu",
                            f"--text={tmp_path / 'text'}", "--window=32", "-o", "json"],
                           stdout=subprocess.PIPE, check=True, text=True).stdout
    assert json.loads(shown)["plans"][0]["perplexity"] == report.perplexity
    assert report.perplexity == pytest.approx(math.exp(report.nll))
    assert 1 < report.perplexity < 4096 and report.tokens < len(ids)
    # The same from the session's logits, window by window.
    session = gpt2c.Session(plan, "cpu")
    total, count = 0.0, 0
    for begin in range(0, len(ids) - 1, 32):
        window = ids[begin:begin + 32]
        for row, token in zip(session.logits([window])[0], window[1:]):
            total += math.log(sum(math.exp(float(z)) for z in row)) - float(row[token])
            count += 1
    assert count == report.tokens and report.nll == pytest.approx(total / count, rel=1e-5)


@pytest.mark.parametrize("error, code, model, more", [
    (gpt2c.IoError, 2, "no-such.onnx", {}),
    (gpt2c.InvalidOnnxError, 3, SAMPLE / "vocab.json", {}),
    (gpt2c.UsageError, 1, SAMPLE / "model.onnx", {"precision": "fp17"}),
    (gpt2c.UsageError, 1, SAMPLE / "model.onnx", {"optimize": 7}),
])
def test_errors_have_the_class_of_the_exit_code(error: type[gpt2c.Error], code: int, model: Any,
                                                more: Any) -> None:
    with pytest.raises(error) as caught:
        gpt2c.compile(model, gpu_arch="none", **more)
    assert type(caught.value) is error and caught.value.code == code
    assert str(caught.value) and not str(caught.value).startswith("error:")


def test_plans_that_cannot_be_opened(plan: gpt2c.Plan, tmp_path: Path) -> None:
    with pytest.raises(gpt2c.IoError, match="no-such.plan"):
        gpt2c.Plan("no-such.plan")
    data = bytearray(Path(plan.path).read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / "damaged.plan").write_bytes(data)
    with pytest.raises(gpt2c.CorruptError, match="damaged.plan"):
        gpt2c.Plan(tmp_path / "damaged.plan")
    for name in ("tpu", "cuda:", "cuda:x", "cuda:-1"):
        with pytest.raises(gpt2c.UsageError, match=f"no device '{name}'; there are auto, cuda"):
            gpt2c.Session(plan, name)
    assert issubclass(gpt2c.IoError, OSError) and issubclass(gpt2c.UsageError, ValueError)


def test_no_gpu_says_so(plan: gpt2c.Plan) -> None:
    if os.path.exists("/dev/nvidia0"):
        pytest.skip("there is a GPU")
    for name in ("cuda", "cuda:0", "cuda:99"):
        with pytest.raises(gpt2c.IncompatibleError):
            gpt2c.Session(plan, name)
    assert gpt2c.Session(plan).device == "cpu"


def test_an_export_in_three_lines() -> None:
    llm = gpt2c.from_pretrained(SAMPLE, device="cpu", gpu_arch="none", verify="off")
    assert llm.generate("She opened the door and", GREEDY)[0].outputs[0].text == " the door opened."


def test_a_checkpoint_says_what_to_install(tmp_path: Path) -> None:
    if all(importlib.util.find_spec(m) for m in ("torch", "transformers", "onnx")):
        pytest.skip("PyTorch and Transformers are installed")
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    with pytest.raises(ImportError, match="not installed: torch.*\n.*pip install torch"):
        gpt2c.from_pretrained(tmp_path)


def test_folders_that_are_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(gpt2c.UsageError, match="neither config.json nor model.onnx"):
        gpt2c.from_pretrained(tmp_path)
    with pytest.raises(gpt2c.IoError, match="Models are not downloaded"):
        gpt2c.from_pretrained(tmp_path / "gpt2")
    (tmp_path / "config.json").write_text("[1")
    with pytest.raises(gpt2c.UsageError, match="no configuration of Transformers"):
        gpt2c.from_pretrained(tmp_path)


def test_console_entry_points_are_the_tools(tmp_path: Path) -> None:
    script = tmp_path / "gpt2c-run"
    script.write_text("import sys; from gpt2c._tools import main; main()")
    done = subprocess.run([sys.executable, script, "--version"], stdout=subprocess.PIPE, text=True)
    assert done.returncode == 0 and gpt2c.__version__ in done.stdout
    script = tmp_path / "gpt2c-no-such"
    script.write_text("import sys; from gpt2c._tools import main; main()")
    done = subprocess.run([sys.executable, script], stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1 and "there is no tool 'gpt2c-no-such'" in done.stderr


def stand_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, dynamic: bool,
             export: Any) -> dict[str, Any]:
    """PyTorch and Transformers whose exporter is `export`, and a checkpoint of theirs; what
    Transformers is asked for."""
    asked: dict[str, Any] = {}

    class Model(SimpleNamespace):
        def __call__(self, **options: Any) -> Any:
            return SimpleNamespace(logits=options["input_ids"])

        def float(self) -> "Model":
            asked["widened"] = True
            return self

    class Module:
        def eval(self) -> None:
            asked["evaluates"] = True

    def load(folder: Path, **options: Any) -> Model:
        asked["folder"] = folder
        return Model(config=SimpleNamespace())

    auto = SimpleNamespace(from_pretrained=load)
    torch = SimpleNamespace(int64="i64", zeros=lambda shape, dtype: shape, __version__="9.9",
                            arange=lambda n: SimpleNamespace(reshape=lambda *shape: shape),
                            no_grad=contextlib.nullcontext, nn=SimpleNamespace(Module=Module),
                            onnx=SimpleNamespace(export=export))
    if dynamic:
        torch.export = SimpleNamespace(Dim=SimpleNamespace(DYNAMIC="any"))
    for name, module in (("torch", torch), ("onnx", SimpleNamespace()),
                         ("onnxscript", SimpleNamespace()),
                         ("transformers", SimpleNamespace(AutoModelForCausalLM=auto,
                                                          __version__="8.8"))):
        module.__spec__ = importlib.machinery.ModuleSpec(name, None)
        monkeypatch.setitem(sys.modules, name, module)
    for name in ("vocab.json", "merges.txt", "config.json"):
        shutil.copy(SAMPLE / name, tmp_path)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [3, 7]}')
    return asked


@pytest.mark.parametrize("dynamic, fails", [(False, 0), (True, 0), (True, 1)])
def test_a_checkpoint_goes_through_the_exporter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                dynamic: bool, fails: int) -> None:
    """With stand-ins for PyTorch and Transformers, whose exporters give the sample's graph: the
    one of newer versions, or where it cannot the other one. The texts beside it come with it."""
    calls: list[dict[str, Any]] = []

    def export(module: Any, arguments: Any, path: str, **options: Any) -> None:
        assert module.forward(arguments[0]) is arguments[0]
        calls.append(options)
        if len(calls) <= fails:
            raise RuntimeError("not today")
        shutil.copy(SAMPLE / "model.onnx", path)

    asked = stand_in(monkeypatch, tmp_path, dynamic, export)
    llm = gpt2c.from_pretrained(tmp_path, device="cpu", gpu_arch="none", verify="off")
    assert llm.generate("She opened the door and", GREEDY)[0].outputs[0].text == " the door opened."
    assert llm.plan.eos_token_ids[:2] == [3, 7]
    assert asked == {"folder": tmp_path, "widened": True, "evaluates": True}
    assert [c["dynamo"] for c in calls] == [dynamic, False][:1 + fails]
    assert calls[-1]["input_names"] == ["input_ids"]
    if calls[-1]["dynamo"]:
        assert calls[-1]["dynamic_shapes"] == ({0: "any", 1: "any"},)
    else:
        assert calls[-1]["dynamic_axes"]["logits"] == {0: "batch", 1: "seq"}


def test_old_exporters_know_no_dynamo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def export(module: Any, arguments: Any, path: str, input_names: Any, output_names: Any,
               opset_version: int, dynamic_axes: Any) -> None:
        shutil.copy(SAMPLE / "model.onnx", path)

    stand_in(monkeypatch, tmp_path, False, export)
    llm = gpt2c.from_pretrained(tmp_path, device="cpu", gpu_arch="none", verify="off")
    assert llm.generate("She opened the door and", GREEDY)[0].outputs[0].text == " the door opened."


def test_what_no_exporter_can_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def export(*_: Any, **options: Any) -> None:
        raise RuntimeError("no " + ("dynamo" if options["dynamo"] else "script"))

    stand_in(monkeypatch, tmp_path, True, export)
    with pytest.raises(gpt2c.UnsupportedError, match="(?s)9.9 .* 8.8; .*no dynamo.*no script"):
        gpt2c.from_pretrained(tmp_path)


def test_an_adapter_says_how_to_merge_it(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(gpt2c.UsageError, match="merge_and_unload"):
        gpt2c.from_pretrained(tmp_path)


def test_an_adapter_is_merged(tmp_path: Path) -> None:
    write_safetensors(tmp_path, {})
    random, adapter = np.random.default_rng(2), tmp_path / "adapter"
    adapter.mkdir()
    tensors = {f"base_model.model.transformer.h.0.mlp.c_proj.lora_{part}.weight":
               random.standard_normal(shape).astype("<f4")
               for part, shape in (("A", (2, 64)), ("B", (16, 2)))}
    write_tensors(adapter / "adapter_model.safetensors", tensors)
    (adapter / "adapter_config.json").write_text(json.dumps(
        {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["h.0.mlp.c_proj"]}))

    def logits(**options: Any) -> Any:
        llm = gpt2c.from_pretrained(tmp_path, device="cpu", gpu_arch="none", verify="off",
                                    **options)
        return gpt2c.Session(llm.plan, "cpu").prefill([[1, 2, 3]], logits=True).logits

    assert abs(logits() - logits(adapter=adapter)).max() > 1e-2
    (adapter / "adapter_config.json").write_text('{"peft_type": "IA3"}')
    with pytest.raises(gpt2c.UnsupportedError, match="IA3"):
        logits(adapter=adapter)


def test_adapters_are_what_peft_makes_of_them(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    peft = pytest.importorskip("peft")
    config = transformers.LlamaConfig(
        vocab_size=97, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64)
    kinds: list[dict[str, Any]] = [
        {"target_modules": ["q_proj", "v_proj"], "modules_to_save": ["lm_head", "norm"]},
        {"target_modules": "all-linear", "use_rslora": True, "rank_pattern": {"q_proj": 5},
         "alpha_pattern": {"layers.1.mlp.up_proj": 3}},
        {"target_modules": ["embed_tokens", "o_proj"]}]
    for seed, kind in enumerate(kinds):
        torch.manual_seed(seed)
        folder = tmp_path / str(seed)
        model = transformers.AutoModelForCausalLM.from_config(config)
        model.save_pretrained(folder)
        model = peft.get_peft_model(model, peft.LoraConfig(
            task_type="CAUSAL_LM", r=4, lora_alpha=6, **kind)).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.requires_grad:
                    parameter.add_(torch.randn_like(parameter) * 0.1)
            logits = model(torch.tensor([[3, 4, 5]])).logits[0, -1].numpy()
        model.save_pretrained(folder / "adapter")
        llm = gpt2c.from_pretrained(folder, adapter=folder / "adapter", device="cpu",
                                    gpu_arch="none", verify="off")
        got = gpt2c.Session(llm.plan, "cpu").prefill([[3, 4, 5]], logits=True).logits
        assert got is not None and abs(got[0] - logits).max() < 1e-4 * abs(logits).max()


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_checkpoints_by_the_exporter_that_is_here(tmp_path: Path, kind: str) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("onnx")
    torch.manual_seed(35)
    config = transformers.GPT2Config(vocab_size=300, n_positions=64, n_embd=32, n_layer=2, n_head=2)
    if kind == "llama":
        config = transformers.LlamaConfig(
            vocab_size=300, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    model.save_pretrained(tmp_path)
    ids = torch.tensor([[3, 4, 5]])
    with torch.no_grad():
        logits = model(ids).logits[0, -1]
    work = tmp_path / "export"
    work.mkdir()
    exported = gpt2c.compile(_hub.export(tmp_path, str(work)), gpu_arch="none")
    for plan in (exported, gpt2c.from_pretrained(tmp_path, device="cpu", gpu_arch="none").plan):
        got = gpt2c.Session(plan, "cpu").prefill([[3, 4, 5]], logits=True).logits
        assert got is not None and abs(got[0] - logits.numpy()).max() < 1e-4 * abs(logits).max()


def write_tensors(path: Path, tensors: dict[str, Any]) -> None:
    header, data = {}, b""
    for name, tensor in tensors.items():
        part = tensor.tobytes()
        header[name] = {"dtype": "F32", "shape": list(tensor.shape),
                        "data_offsets": [len(data), len(data) + len(part)]}
        data += part
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def write_safetensors(folder: Path, config: dict[str, Any]) -> None:
    """A GPT-2 of two layers whose weights are random."""
    width, random = 16, np.random.default_rng(35)
    shapes = {"wte.weight": (96, width), "wpe.weight": (32, width), "ln_f.weight": (width,),
              "ln_f.bias": (width,)}
    for i in range(2):
        for name, shape in {"ln_1": (width,), "ln_2": (width,), "attn.c_attn": (width, 3 * width),
                            "attn.c_proj": (width, width), "mlp.c_fc": (width, 4 * width),
                            "mlp.c_proj": (4 * width, width)}.items():
            shapes[f"h.{i}.{name}.weight"] = shape
            shapes[f"h.{i}.{name}.bias"] = shape[-1:]
    write_tensors(folder / "model.safetensors",
                  {"transformer." + name: random.standard_normal(shape).astype("<f4")
                   for name, shape in shapes.items()})
    (folder / "config.json").write_text(json.dumps(
        {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": width, "n_layer": 2,
         "n_head": 2, "n_positions": 32, "vocab_size": 96, "eos_token_id": 5, **config}))


def test_safetensors_need_no_export(tmp_path: Path) -> None:
    """What the compiler knows it compiles without PyTorch; what it does not it names."""
    write_safetensors(tmp_path, {})
    llm = gpt2c.from_pretrained(tmp_path, device="cpu", gpu_arch="none", verify="off")
    assert llm.plan.max_context == 32 and llm.plan.eos_token_ids == [5]
    assert len(llm.generate({"prompt_token_ids": [1, 2]}, GREEDY)[0].outputs[0].token_ids) > 0
    if missing_packages():
        write_safetensors(tmp_path, {"a_key_of_tomorrow": 3})
        with pytest.raises(gpt2c.UnsupportedError, match="a_key_of_tomorrow"):
            gpt2c.from_pretrained(tmp_path)
