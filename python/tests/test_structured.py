"""Answers of a form, and tokens that are kept away."""
import json
import re

import pytest

import gpt2c
from gpt2c import SamplingParams, StructuredOutputsParams
from gpt2c import _core

PROMPT = "A cat: "
SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 9},
                                           "age": {"type": "integer", "minimum": 0,
                                                   "maximum": 30}},
          "required": ["name", "age"]}
needs_grammars = pytest.mark.skipif(not _core.has_grammars, reason="this build has no XGrammar")


def text(llm: gpt2c.LLM, outputs: StructuredOutputsParams, seed: int) -> str:
    params = SamplingParams(structured_outputs=outputs, seed=seed, max_tokens=100,
                            temperature=seed % 2)
    answer = llm.generate(PROMPT, params)[0].outputs[0]
    assert answer.finish_reason == "stop"
    return answer.text


@needs_grammars
def test_an_answer_has_the_form_that_is_asked_for(llm: gpt2c.LLM) -> None:
    for seed in range(4):
        for schema in (SCHEMA, json.dumps(SCHEMA)):
            value = json.loads(text(llm, StructuredOutputsParams(json=schema), seed))
            assert list(value) == ["name", "age"] and 0 <= value["age"] <= 30
        assert re.fullmatch("[a-c]{2}-[0-9]{1,3}",
                            text(llm, StructuredOutputsParams(regex="[a-c]{2}-[0-9]{1,3}"), seed))
        assert text(llm, StructuredOutputsParams(choice=["yes", "no"]), seed) in ("yes", "no")
        assert re.fullmatch(r"<[xy]+>", text(
            llm, StructuredOutputsParams(grammar='root ::= "<" [xy]{1,4} ">"'), seed))


@needs_grammars
def test_several_forms_run_together(llm: gpt2c.LLM) -> None:
    params = [SamplingParams(structured_outputs=StructuredOutputsParams(choice=[w]), seed=1)
              for w in ("one", "two", "three")] + [SamplingParams(seed=2)]
    together = [r.outputs[0].text for r in llm.generate([PROMPT] * 4, params)]
    assert together[:3] == ["one", "two", "three"]
    assert together[3] == llm.generate(PROMPT, params[3])[0].outputs[0].text


def test_errors(llm: gpt2c.LLM) -> None:
    with pytest.raises(gpt2c.UsageError, match="exactly one"):
        StructuredOutputsParams()
    with pytest.raises(gpt2c.UsageError, match="exactly one"):
        StructuredOutputsParams(json="{}", regex="a")
    wrong = SamplingParams(structured_outputs=StructuredOutputsParams(regex="(a"))
    with pytest.raises(gpt2c.UsageError if _core.has_grammars else gpt2c.UnsupportedError,
                       match="regex|GPT2C_XGRAMMAR"):
        llm.generate(PROMPT, wrong)


def test_tokens_are_kept_away(llm: gpt2c.LLM) -> None:
    greedy = llm.generate(PROMPT, SamplingParams(temperature=0, max_tokens=12))[0].outputs[0]
    word = greedy.text.split()[0]
    other = llm.generate(PROMPT, SamplingParams(temperature=0, max_tokens=12, bad_words=[word]))
    assert other[0].outputs[0].text != greedy.text
    few = llm.generate(PROMPT, SamplingParams(allowed_token_ids=[7, 9], seed=3))[0].outputs[0]
    assert set(few.token_ids) <= {7, 9}
    ends = greedy.token_ids[2]
    short = SamplingParams(temperature=0, max_tokens=12, stop_token_ids=[ends])
    late = SamplingParams(temperature=0, max_tokens=12, stop_token_ids=[ends], min_tokens=6)
    assert len(llm.generate(PROMPT, short)[0].outputs[0].token_ids) <= 3
    answer = llm.generate(PROMPT, late)[0].outputs[0]
    assert len(answer.token_ids) >= 6 and ends not in answer.token_ids[:6]


def test_salts_share_no_pages(llm: gpt2c.LLM) -> None:
    def hits() -> int:
        stats = llm.engine_stats()
        assert stats
        return stats["prefix_hits"]

    prompt = list(range(100, 400))
    params = SamplingParams(temperature=0, max_tokens=1)
    for salt, shares in (("a", False), ("b", False), ("a", True)):
        before = hits() if llm.engine_stats() else 0
        llm.generate({"prompt_token_ids": prompt, "cache_salt": salt}, params)
        assert (hits() > before) == shares
