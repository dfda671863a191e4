"""What runs at one time runs together, and gives what it gives alone."""
import asyncio
import json
import threading
from typing import Any

import numpy as np
import pytest

import gpt2c
from conftest import ARCH, DEVICE, SAMPLE
from gpt2c import AsyncLLM, SamplingParams

PROMPTS = [f"{word} was" for word in "She He It Nobody Somebody Everyone".split()]


def greedy(**more: Any) -> SamplingParams:
    return SamplingParams(temperature=0, ignore_eos=True, **more)


def alone(llm: gpt2c.LLM, prompts: list[str], params: SamplingParams) -> list[list[int]]:
    return [llm.generate(p, params)[0].outputs[0].token_ids for p in prompts]


def test_coroutines_run_together(llm: gpt2c.LLM) -> None:
    params = greedy(max_tokens=40)
    expected = alone(llm, PROMPTS, params)

    async def together() -> list[list[gpt2c.RequestOutput]]:
        return await asyncio.gather(*(llm.agenerate(p, params) for p in PROMPTS))

    before = llm.engine_stats()
    assert before
    answers = asyncio.run(together())
    after = llm.engine_stats()
    assert after
    assert [a[0].outputs[0].token_ids for a in answers] == expected
    assert after["new_tokens"] - before["new_tokens"] == 6 * 40
    assert after["steps"] - before["steps"] < 2 * 40  # one after the other they are 6 * 40


def test_answers_take_turns_where_the_device_has_no_room(plan: gpt2c.Plan) -> None:
    params = greedy(max_tokens=150)
    plenty = gpt2c.LLM(plan, DEVICE)
    expected = alone(plenty, PROMPTS, params)
    stats = plenty.engine_stats()
    assert stats and stats["host_pages"] == 0
    few = gpt2c.LLM(plan, DEVICE, kv_bytes=4 * stats["page_bytes"], host_pages=40)
    answers = few.generate(PROMPTS, params)
    assert [a.outputs[0].token_ids for a in answers] == expected
    stats = few.engine_stats()
    assert stats and stats["host_pages"] == 40 and stats["pages_in"] > 0
    with pytest.raises(gpt2c.UsageError, match="at least 0"):
        gpt2c.LLM(plan, DEVICE, host_pages=-1)


def test_threads_run_together_and_take_turns_with_the_session(plan: gpt2c.Plan) -> None:
    llm = gpt2c.LLM(plan, DEVICE, threads=1)
    params = greedy(max_tokens=12)
    expected = alone(llm, PROMPTS, params)
    assert llm.tokenizer
    ids = llm.tokenizer.encode(PROMPTS[0])
    first = llm.session.prefill([ids]).next.tolist()
    failures: list[str] = []

    def ask(i: int) -> None:
        for _ in range(5):
            if llm.generate(PROMPTS[i], params)[0].outputs[0].token_ids != expected[i]:
                failures.append(PROMPTS[i])

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(PROMPTS))]
    for t in threads:
        t.start()
    for _ in range(5):  # what the pages held is not there any more after each of these
        assert llm.session.prefill([ids]).next.tolist() == first
    for t in threads:
        t.join()
    assert not failures
    assert llm.session.lengths in ([], [len(ids)])
    llm.generate(PROMPTS[0], greedy(max_tokens=1))
    assert llm.session.lengths == []  # a generation ends the batch


def test_prompts_as_vllm_takes_them(llm: gpt2c.LLM) -> None:
    assert llm.tokenizer
    ids = llm.tokenizer.encode(PROMPTS[0])
    params = greedy(max_tokens=4)
    expected = alone(llm, PROMPTS[:1], params)[0]
    for prompt in ({"prompt_token_ids": ids}, {"prompt": PROMPTS[0]}, [{"prompt_token_ids": ids}],
                   {"prompt": PROMPTS[0], "prompt_token_ids": None}):
        assert llm.generate(prompt, params)[0].outputs[0].token_ids == expected
    with pytest.raises(gpt2c.UsageError, match="prompt 2 is a mapping with neither"):
        llm.generate([{"prompt": "a"}, {"text": "b"}], params)


def test_without_max_tokens_the_context_ends_it() -> None:
    small = gpt2c.LLM(gpt2c.compile(SAMPLE / "model.onnx", gpu_arch=ARCH, max_context=24), DEVICE)
    assert small.tokenizer
    ids = small.tokenizer.encode(PROMPTS[0])
    out = small.generate(PROMPTS[0], greedy(max_tokens=None))[0].outputs[0]
    assert out.finish_reason == "context"
    assert len(ids) + len(out.token_ids) == 24 + 1  # the last token needs no room
    with pytest.raises(gpt2c.UsageError, match="longer than the plan's context"):
        small.generate([ids * 20], greedy(max_tokens=2))
    with pytest.raises(gpt2c.UsageError, match="slide prevents"):
        small.generate(PROMPTS[0], greedy(max_tokens=None), slide=2)


def test_a_refused_prompt_stops_none_of_the_others(llm: gpt2c.LLM) -> None:
    with pytest.raises(gpt2c.UsageError, match="ids go from 0"):
        llm.generate([[1, 2], [10**6]], greedy(max_tokens=2))
    with pytest.raises(gpt2c.UsageError):
        llm.generate("a", SamplingParams(top_p=3.0))
    assert llm.generate("a", greedy(max_tokens=2))[0].finished


def test_async_llm(plan: gpt2c.Plan) -> None:
    async def run() -> None:
        async with AsyncLLM(plan, DEVICE, threads=1) as llm:
            params = greedy(max_tokens=9)
            expected = alone(llm.llm, PROMPTS, params)

            async def whole(i: int) -> list[int]:
                grown = 0
                async for output in llm.generate(PROMPTS[i], params, f"request {i}"):
                    assert output.request_id == f"request {i}"
                    assert len(output.outputs[0].token_ids) >= grown
                    grown = len(output.outputs[0].token_ids)
                assert output.finished
                return output.outputs[0].token_ids

            assert await asyncio.gather(*(whole(i) for i in range(len(PROMPTS)))) == expected
            seen = 0
            async for output in llm.generate("Once", greedy(max_tokens=None), "long"):
                seen += 1
                if seen == 3:
                    await llm.abort("long")
            assert seen == 3 and not output.finished
            assert await whole(1) == expected[1]
    asyncio.run(run())


def test_a_tokenizer_of_transformers(plan: gpt2c.Plan, tmp_path: Any) -> None:
    """By what its fast ones have: a backend that says what tokenizer.json would."""
    vocab = json.loads((SAMPLE / "vocab.json").read_text())
    merges = [line.split() for line in (SAMPLE / "merges.txt").read_text().splitlines()
              if line and not line.startswith("#")]
    text = json.dumps({
        "version": "1.0", "added_tokens": [
            {"id": vocab["<|endoftext|>"], "content": "<|endoftext|>", "special": True,
             "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}],
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                          "use_regex": True},
        "post_processor": None, "decoder": {"type": "ByteLevel"},
        "model": {"type": "BPE", "vocab": vocab, "merges": merges}})

    class Backend:
        def to_str(self) -> str:
            return text

    class Fast:
        backend_tokenizer = Backend()
        chat_template = "{{ eos_token }}{{ messages[0].content }}"
        special_tokens_map = {"eos_token": "<|endoftext|>", "additional": ["a"]}

    given = gpt2c.LLM(plan, DEVICE, threads=1, tokenizer=Fast())
    assert given.tokenizer and plan.tokenizer
    assert given.tokenizer.encode(PROMPTS[0]) == plan.tokenizer.encode(PROMPTS[0])
    one = gpt2c.SamplingParams(max_tokens=1)
    chat = given.chat([{"role": "user", "content": "The river"}], one)
    assert chat[0].prompt == "<|endoftext|>The river"
    assert chat[0].prompt_token_ids == [vocab["<|endoftext|>"],
                                        *plan.tokenizer.encode("The river")]
    with pytest.raises(gpt2c.UsageError, match="not a int"):
        gpt2c.LLM(plan, DEVICE, tokenizer=7)


def test_prompts_are_scored(llm: gpt2c.LLM) -> None:
    """As log softmax in double of the logits that the session gives says, for two prompts."""
    params = SamplingParams(n=2, temperature=0, max_tokens=2, prompt_logprobs=3)
    for out in llm.generate(["The river ran past the old mill.", "a"], params):
        ids, scored = out.prompt_token_ids, out.prompt_logprobs
        assert scored and scored[0] is None and len(scored) == len(ids)
        logits = llm.session.logits([ids])[0].astype(np.float64)
        for row, token, told in zip(logits, ids[1:], scored[1:]):
            expected = row - np.log(np.sum(np.exp(row - row.max()))) - row.max()
            best = np.argsort(-expected)[:3].tolist()
            assert told and set(told) == {token, *best}
            for t, one in told.items():
                assert abs(one.logprob - expected[t]) < 1e-4
            assert [told[t].rank for t in best] == [1, 2, 3]
    assert llm.generate("a", SamplingParams(temperature=0))[0].prompt_logprobs is None
