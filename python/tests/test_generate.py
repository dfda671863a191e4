"""Answers: greedy, sampled, stopped, streamed."""
from typing import Any

import pytest

import gpt2c
from conftest import ARCH, DEVICE, SAMPLE
from gpt2c import SamplingParams

PROMPT = "She opened the door and"


def greedy(**more: Any) -> SamplingParams:
    return SamplingParams(temperature=0, **more)


def test_greedy_equals_golden(llm: gpt2c.LLM, golden: Any) -> None:
    out = llm.generate(golden["prompt"], greedy(max_tokens=40, ignore_eos=True))
    assert out[0].outputs[0].token_ids == golden["greedy"]
    assert out[0].prompt_token_ids == golden["prompt"]
    assert out[0].outputs[0].finish_reason == "length"
    assert out[0].finished


def test_prompts_of_all_kinds_agree(llm: gpt2c.LLM) -> None:
    import numpy as np
    assert llm.tokenizer
    ids = llm.tokenizer.encode(PROMPT)
    answers = [llm.generate(p, greedy(max_tokens=6))[0].outputs[0].token_ids
               for p in (PROMPT, [PROMPT], ids, [ids], np.array(ids), np.array([ids]))]
    assert all(a == answers[0] for a in answers) and len(answers[0]) == 6


def test_more_prompts_than_the_plan_holds_at_once(llm: gpt2c.LLM) -> None:
    prompts = [f"{PROMPT} {word}" for word in "a the he she it I we you no one two".split()]
    assert len(prompts) > llm.plan.max_batch
    together = llm.generate(prompts, greedy(max_tokens=5))
    alone = [llm.generate(p, greedy(max_tokens=5))[0] for p in prompts]
    assert [o.outputs[0].token_ids for o in together] == [o.outputs[0].token_ids for o in alone]
    assert [o.prompt for o in together] == prompts


def test_stream_equals_generate(llm: gpt2c.LLM) -> None:
    prompts = [PROMPT, "The café was", "Once"]
    params = SamplingParams(n=2, temperature=1.2, seed=7, max_tokens=24, logprobs=2)
    whole = llm.generate(prompts, params)
    stream = llm.stream(prompts, params)
    texts: dict[tuple[int, int], str] = {}
    ids: dict[tuple[int, int], list[int]] = {}
    for chunk in stream:
        key = (chunk.prompt_index, chunk.index)
        texts[key] = texts.get(key, "") + chunk.text
        ids.setdefault(key, []).extend(chunk.token_ids)
    for i, request in enumerate(whole):
        for answer in request.outputs:
            assert texts[i, answer.index] == answer.text
            assert ids[i, answer.index] == answer.token_ids
    for a, b in zip(whole, stream.outputs):  # what else runs moves the last bits
        for x, y in zip(a.outputs, b.outputs):
            assert (x.text, x.token_ids, x.finish_reason) == (y.text, y.token_ids, y.finish_reason)
            assert x.cumulative_logprob == pytest.approx(y.cumulative_logprob, rel=1e-4)


def test_text_is_that_of_the_ids(llm: gpt2c.LLM) -> None:
    assert llm.tokenizer
    for seed in range(12):
        params = SamplingParams(temperature=3.0, seed=seed, max_tokens=20, ignore_eos=True)
        answer = llm.generate(PROMPT, params)[0].outputs[0]
        ids = [t for t in answer.token_ids if t != llm.plan.eos_token_id]
        assert answer.text == llm.tokenizer.decode(ids)


def test_seeds_repeat_and_differ(llm: gpt2c.LLM) -> None:
    def answers(seed: int) -> list[list[int]]:
        params = SamplingParams(n=3, seed=seed, max_tokens=12)
        return [o.token_ids for o in llm.generate(PROMPT, params)[0].outputs]
    assert answers(5) == answers(5)
    assert answers(5)[1:] == answers(6)[:2]  # the i-th draws with seed + i
    assert len({tuple(a) for a in answers(5)}) > 1


def test_seeds_are_drawn_from_that_of_the_llm(plan: gpt2c.Plan) -> None:
    def answers(seed: int) -> list[str]:
        llm = gpt2c.LLM(plan, DEVICE, seed=seed, threads=1)
        return [llm.generate(PROMPT, SamplingParams(max_tokens=8))[0].outputs[0].text
                for _ in range(2)]
    assert answers(1) == answers(1) != answers(2)


def test_a_stop_string_is_cut_and_named(llm: gpt2c.LLM) -> None:
    whole = llm.generate(PROMPT, greedy(max_tokens=24))[0].outputs[0].text
    stop = whole[7:12]
    cut = whole[:whole.index(stop)]
    chunks = list(llm.stream(PROMPT, greedy(max_tokens=24, stop=["never there", stop])))
    assert "".join(c.text for c in chunks) == cut
    assert chunks[-1].finish_reason == "stop" and chunks[-1].stop_reason == stop
    kept = greedy(max_tokens=24, stop=stop, include_stop_str_in_output=True)
    assert llm.generate(PROMPT, kept)[0].outputs[0].text == cut + stop


def test_stop_ids_and_end_of_text(llm: gpt2c.LLM, golden: Any) -> None:
    assert llm.tokenizer
    stop = golden["greedy"][3]
    out = llm.generate(golden["prompt"], greedy(max_tokens=9, stop_token_ids=[stop]))[0].outputs[0]
    assert out.token_ids == golden["greedy"][:4]
    assert (out.finish_reason, out.stop_reason) == ("stop", stop)
    assert out.text == llm.tokenizer.decode(golden["greedy"][:3])
    eos = llm.plan.eos_token_id
    assert eos == 0
    forced = greedy(max_tokens=4, logit_bias={eos: 1000.0})
    out = llm.generate(golden["prompt"], forced)[0].outputs[0]
    assert (out.token_ids, out.text, out.finish_reason) == ([eos], "", "stop")
    assert out.stop_reason is None
    shown = greedy(max_tokens=2, logit_bias={eos: 1000.0}, ignore_eos=True,
                   skip_special_tokens=False)
    assert llm.generate(golden["prompt"], shown)[0].outputs[0].text == "<|endoftext|>" * 2


def test_logprobs(llm: gpt2c.LLM) -> None:
    out = llm.generate(PROMPT, greedy(max_tokens=5, logprobs=3))[0].outputs[0]
    assert out.logprobs and len(out.logprobs) == 5
    total = 0.0
    for token, table in zip(out.token_ids, out.logprobs):
        assert len(table) == 3 and table[token].rank == 1
        assert table[token].logprob == max(entry.logprob for entry in table.values()) <= 0
        total += table[token].logprob
    assert out.cumulative_logprob == pytest.approx(total)
    assert llm.generate(PROMPT, greedy(max_tokens=1))[0].outputs[0].logprobs is None


def test_parameters_for_each_prompt(llm: gpt2c.LLM) -> None:
    out = llm.generate([PROMPT, PROMPT], [greedy(max_tokens=3), greedy(max_tokens=7)])
    lengths = [len(o.outputs[0].token_ids) for o in out]
    assert lengths == [3, 7]


def test_the_context_ends_an_answer_or_slides(plan: gpt2c.Plan) -> None:
    small = gpt2c.LLM(gpt2c.compile(SAMPLE / "model.onnx", gpu_arch=ARCH, max_context=16), DEVICE)
    out = small.generate(PROMPT, greedy(max_tokens=40))[0].outputs[0]
    assert out.finish_reason == "context" and len(out.token_ids) < 40
    slid = small.generate(PROMPT, greedy(max_tokens=40), slide=2)[0].outputs[0]
    assert slid.finish_reason == "length" and len(slid.token_ids) == 40


def test_a_stream_that_is_left_ends(llm: gpt2c.LLM) -> None:
    import time
    with llm.stream([PROMPT] * 200, greedy(max_tokens=400)) as stream:
        assert next(stream).token_ids
        begin = time.monotonic()
    with pytest.raises(StopIteration):
        next(stream)
    assert time.monotonic() - begin < 20  # 25 groups of 400 steps would take minutes
    assert llm.generate(PROMPT, greedy(max_tokens=2))[0].finished


def test_answers_have_their_times(llm: gpt2c.LLM) -> None:
    first, *_, last = (out.outputs[0] for out in llm.generate(
        ["Once"] * 5, SamplingParams(temperature=0, max_tokens=4, ignore_eos=True)))
    for out in (first, last):
        assert out.first_token_seconds and out.last_token_seconds and out.tokens_per_second
        assert 0 < out.first_token_seconds < out.last_token_seconds
        span = out.last_token_seconds - out.first_token_seconds
        assert out.tokens_per_second == pytest.approx(3 / span)
    assert first == last  # times are no part of what is compared
    one = llm.generate("Once", SamplingParams(max_tokens=1))[0].outputs[0]
    assert one.first_token_seconds == one.last_token_seconds and one.tokens_per_second is None
