"""Chats by the model's template, what ends an answer, what its makers advise."""
import asyncio
import json
import random
import shutil
from pathlib import Path
from typing import Any, Iterator

import pytest

import gpt2c
from conftest import ARCH, DEVICE, SAMPLE
from gpt2c import SamplingParams

TEMPLATE = ("{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>{{ m.content }}\n{% endfor %}"
            "{% if tools %}{{ tools | tojson }}{% endif %}"
            "{% if add_generation_prompt %}<|assistant|>{{ hint }}{% endif %}")


def greedy(**more: Any) -> SamplingParams:
    return SamplingParams(temperature=0, **more)


def render(messages: list[dict[str, str]], hint: str = "") -> str:
    turns = "".join(f"<|{m['role']}|>{m['content']}\n" for m in messages)
    return f"<|endoftext|>{turns}<|assistant|>{hint}"


@pytest.fixture(scope="module")
def chatty(tmp_path_factory: pytest.TempPathFactory, llm: gpt2c.LLM) -> Iterator[gpt2c.LLM]:
    """The sample with a template, two tokens that end answers and its makers' advice."""
    folder = tmp_path_factory.mktemp("chatty") / "model"
    shutil.copytree(SAMPLE, folder)
    ends = llm.generate("The river", greedy(max_tokens=6))[0].outputs[0].token_ids[4:5]
    (folder / "tokenizer_config.json").write_text(json.dumps(
        {"chat_template": TEMPLATE, "bos_token": "<|endoftext|>"}))
    (folder / "generation_config.json").write_text(json.dumps(
        {"eos_token_id": [llm.plan.eos_token_id, *ends], "do_sample": True, "temperature": 0.6,
         "top_p": 0.9, "top_k": 20}))
    plan = gpt2c.compile(folder / "model.onnx", gpu_arch=ARCH, verify="off")
    yield gpt2c.LLM(plan, DEVICE, threads=1)


def test_turns_equal_the_whole_conversation(chatty: gpt2c.LLM, llm: gpt2c.LLM) -> None:
    draw = random.Random(35)
    words = "The river was old and she opened a door café 😀 why {{ x }} 7".split()
    params = greedy(max_tokens=8)
    for system in ([], [{"role": "system", "content": "Be kind."}]):
        messages: list[dict[str, str]] = list(system)
        for _ in range(4):
            messages.append({"role": "user", "content": " ".join(draw.choices(words, k=20))})
            got = chatty.chat(messages, params)[0]
            assert got.prompt == render(messages)
            fresh = chatty.generate({"prompt_token_ids": got.prompt_token_ids}, params)[0]
            assert llm.tokenizer
            assert got.prompt_token_ids == llm.tokenizer.encode(render(messages))
            assert got.outputs[0].token_ids == fresh.outputs[0].token_ids
            messages.append({"role": "assistant", "content": got.outputs[0].text})
    stats = chatty.engine_stats()
    assert stats is None or stats["prefix_hits"] > 64  # what turns share is not computed again


def test_conversations_at_once_and_what_templates_read(chatty: gpt2c.LLM) -> None:
    chats = [[{"role": "user", "content": text}] for text in ("a", "b c")]
    params = greedy(max_tokens=4)
    together = chatty.chat(chats, params)
    assert [o.prompt for o in together] == [render(c) for c in chats]
    alone = chatty.chat(chats[1], params, chat_template_kwargs={"hint": "!"})[0]
    assert alone.prompt == render(chats[1], "!")
    assert alone.outputs == asyncio.run(chatty.achat(
        chats[1], params, chat_template_kwargs={"hint": "!"}))[0].outputs
    mine = chatty.chat(chats[0], params, chat_template="{{ messages[0].content * 3 }}")[0]
    assert mine.prompt == "aaa"
    assert chatty.tokenizer and chatty.tokenizer.has_chat_template
    tool = {"type": "function", "function": {"name": "f"}}
    text = chatty.tokenizer.apply_chat_template(chats[0], tools=[tool],
                                                add_generation_prompt=False)
    assert text == f"<|endoftext|><|user|>a\n[{json.dumps(tool)}]"


def test_chats_are_refused_with_reasons(chatty: gpt2c.LLM, llm: gpt2c.LLM) -> None:
    with pytest.raises(gpt2c.UnsupportedError, match="no chat template"):
        llm.chat([{"role": "user", "content": "a"}])
    nothing: list[Any] = [[], [[]]]
    for messages in nothing:
        with pytest.raises(gpt2c.UsageError, match="no message"):
            chatty.chat(messages)
    with pytest.raises(gpt2c.UsageError, match="not me"):
        chatty.chat([{"role": "user", "content": "a"}],
                    chat_template="{{ raise_exception('not me') }}")
    with pytest.raises(gpt2c.UsageError, match="JSON"):
        chatty.chat([{"role": "user", "content": b"a"}])


def test_every_end_ends(chatty: gpt2c.LLM, llm: gpt2c.LLM) -> None:
    ends = chatty.plan.eos_token_ids
    assert len(ends) == 2 and ends[0] == llm.plan.eos_token_id
    free = llm.generate("The river", greedy(max_tokens=12))[0].outputs[0]
    at = free.token_ids.index(ends[1])
    got = chatty.generate("The river", greedy(max_tokens=12))[0].outputs[0]
    assert got.token_ids == free.token_ids[:at + 1]
    assert (got.finish_reason, got.stop_reason) == ("stop", None)
    assert llm.tokenizer and got.text == llm.tokenizer.decode(free.token_ids[:at])
    on = chatty.generate("The river", greedy(max_tokens=12, ignore_eos=True))[0].outputs[0]
    assert on.token_ids == free.token_ids and on.finish_reason == "length"


def test_advice_is_offered_and_not_taken(chatty: gpt2c.LLM, llm: gpt2c.LLM) -> None:
    advised = chatty.get_default_sampling_params()
    assert advised == SamplingParams(temperature=0.6, top_p=0.9, top_k=20)
    assert llm.plan.advised_sampling is None
    assert llm.get_default_sampling_params() == SamplingParams()
    messages = [{"role": "user", "content": "a"}]
    plain = SamplingParams(seed=3, max_tokens=8)
    assert chatty.chat(messages, plain)[0].outputs[0].token_ids == chatty.chat(
        messages, SamplingParams(seed=3, max_tokens=8, temperature=1.0))[0].outputs[0].token_ids


def test_what_the_tokenizer_adds_is_added(tmp_path: Path) -> None:
    """A tokenizer that puts <s> ahead of a text does so to prompts, and not to chats."""
    shutil.copytree(SAMPLE, tmp_path / "model")
    folder = tmp_path / "model"
    vocabulary = json.loads((folder / "vocab.json").read_text())
    merges = (folder / "merges.txt").read_text().splitlines()
    end = {"id": vocabulary["<|endoftext|>"], "content": "<|endoftext|>", "special": True,
           "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    (folder / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "added_tokens": [end], "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}},
                       {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}],
            "special_tokens": {"<|endoftext|>": {"id": "<|endoftext|>", "ids": [end["id"]],
                                                 "tokens": ["<|endoftext|>"]}}},
        "decoder": {"type": "ByteLevel", "add_prefix_space": False,
                    "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "vocab": vocabulary,
                  "merges": [m for m in merges if m and not m.startswith("#version")]}}))
    (folder / "chat_template.jinja").write_text("{{ messages[0].content }}")
    plan = gpt2c.compile(folder / "model.onnx", gpu_arch="none", verify="off")
    llm = gpt2c.LLM(plan, "cpu", threads=1)
    assert llm.tokenizer
    ids = llm.tokenizer.encode("The river")
    assert ids[0] != end["id"]
    assert llm.tokenizer.encode("The river", add_special_tokens=True) == [end["id"], *ids]
    asked = llm.generate("The river", greedy(max_tokens=1))[0]
    assert asked.prompt_token_ids == [end["id"], *ids]
    chat = llm.chat([{"role": "user", "content": "The river"}], greedy(max_tokens=1))[0]
    assert chat.prompt_token_ids == ids
