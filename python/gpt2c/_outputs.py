"""Sampling parameters and outputs, with the names and meanings of vLLM's."""
from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Literal, Mapping, Optional, Sequence, Union

from ._errors import UsageError

FinishReason = Literal["stop", "length", "context"]


@dataclass(frozen=True)
class StructuredOutputsParams:
    """What an answer is: exactly one of these. Names and meanings are vLLM's."""

    json: Union[str, Mapping[str, Any], None] = None  #: a schema, as text or as json.loads gives it
    regex: Optional[str] = None  #: of the whole answer
    choice: Optional[Sequence[str]] = None
    grammar: Optional[str] = None  #: EBNF, whose first rule is named root
    json_object: Optional[bool] = None  #: True: any object

    def __post_init__(self) -> None:
        given = [n for n in ("json", "regex", "choice", "grammar") if getattr(self, n) is not None]
        if len(given) + bool(self.json_object) != 1:
            raise UsageError("structured outputs are exactly one of json, regex, choice, grammar "
                             "and json_object=True")

    def _text(self) -> tuple[str, str, list[str]]:
        """The kind, the text and the choices that the runtime takes."""
        if self.json is not None:
            text = self.json if isinstance(self.json, str) else json.dumps(self.json)
            return "json_schema", text, []
        if self.choice is not None:
            return "choice", "", list(self.choice)
        if self.json_object:
            return "json_object", "", []
        return ("regex", self.regex, []) if self.regex is not None else ("grammar",
                                                                         self.grammar or "", [])


@dataclass(frozen=True)
class SamplingParams:
    """How answers are chosen. Names and defaults are those of vLLM's SamplingParams: without
    anything said tokens are drawn at temperature 1; temperature=0 takes the most likely one.

    Bias and penalties change the logits, temperature divides them, then min_p, top_k and top_p in
    turn take candidates away. A seed gives one text, whatever else is in the batch."""

    n: int = 1  #: answers to each prompt; the i-th draws with seed + i
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0  #: 0 or -1: all; 1: the most likely one, as temperature=0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    logit_bias: Optional[Mapping[int, float]] = None
    seed: Optional[int] = None  #: None: the LLM draws one
    stop: Union[str, Sequence[str], None] = None
    stop_token_ids: Optional[Sequence[int]] = None
    ignore_eos: bool = False
    max_tokens: Optional[int] = 16  #: None: until the context is full
    logprobs: Optional[int] = None  #: that many of the most likely tokens, and the chosen one
    skip_special_tokens: bool = True  #: the end-of-text token adds nothing to the text
    include_stop_str_in_output: bool = False
    min_tokens: int = 0  #: so many have no end of text and no stop among them
    bad_words: Optional[Sequence[str]] = None  #: their tokens, alone and behind a space, never come
    allowed_token_ids: Optional[Sequence[int]] = None  #: the only ones that may be chosen
    structured_outputs: Optional[StructuredOutputsParams] = None
    prompt_logprobs: Optional[int] = None  #: as logprobs, of the prompt: a step for each token

    def __post_init__(self) -> None:
        if self.min_tokens < 0 or (self.max_tokens is not None
                                   and self.min_tokens > self.max_tokens):
            raise UsageError(f"min_tokens is {self.min_tokens}; it goes from 0 to max_tokens")
        if self.allowed_token_ids is not None and len(self.allowed_token_ids) == 0:
            raise UsageError("allowed_token_ids is empty: no token could be chosen")
        if self.n < 1:
            raise UsageError(f"n is {self.n}; at least one answer is needed")
        if self.max_tokens is not None and self.max_tokens < 1:
            raise UsageError(f"max_tokens is {self.max_tokens}; at least one is needed")
        if self.logprobs is not None and self.logprobs < 0:
            raise UsageError(f"logprobs is {self.logprobs}; it is at least 0")
        if self.prompt_logprobs is not None and self.prompt_logprobs < 0:
            raise UsageError(f"prompt_logprobs is {self.prompt_logprobs}; it is at least 0")
        if self.seed is not None and not 0 <= self.seed + self.n - 1 < 2**64:
            raise UsageError(f"seed is {self.seed}; it goes from 0 to 2**64 - n")
        if any(not s for s in self.stops):
            raise UsageError("a stop string is empty")

    @property
    def stops(self) -> list[str]:
        """`stop` as a list."""
        if self.stop is None:
            return []
        return [self.stop] if isinstance(self.stop, str) else list(self.stop)


@dataclass(frozen=True)
class Logprob:
    """Of the model's distribution, before anything of SamplingParams acts."""

    logprob: float
    rank: Optional[int]  #: from 1; None: not among the ones asked for
    decoded_token: Optional[str]


@dataclass
class CompletionOutput:
    """One answer to a prompt."""

    index: int
    text: str = ""
    token_ids: list[int] = field(default_factory=list)  #: with the one that ended it
    cumulative_logprob: Optional[float] = None  #: where log probabilities were asked for
    logprobs: Optional[list[dict[int, Logprob]]] = None
    #: "stop": by end-of-text or what SamplingParams names; "length": max_tokens; "context": the
    #: plan's context is full
    finish_reason: Optional[FinishReason] = None
    stop_reason: Union[int, str, None] = None  #: the stop string, or the id of stop_token_ids
    #: Until the first and the last token were there, from when they were asked for; a prompt that
    #: waits for its turn counts that.
    first_token_seconds: Optional[float] = field(default=None, compare=False)
    last_token_seconds: Optional[float] = field(default=None, compare=False)

    @property
    def tokens_per_second(self) -> Optional[float]:
        """Of the tokens behind the first one; None: there are none."""
        if self.first_token_seconds is None or self.last_token_seconds is None:
            return None
        seconds = self.last_token_seconds - self.first_token_seconds
        return (len(self.token_ids) - 1) / seconds if seconds > 0 else None

    def finished(self) -> bool:
        return self.finish_reason is not None


@dataclass
class RequestOutput:
    """A prompt and its answers."""

    request_id: str
    prompt: Optional[str]
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    #: Of each token of the prompt, where SamplingParams asks for it; nothing is before the first.
    prompt_logprobs: Optional[list[Optional[dict[int, Logprob]]]] = None

    @property
    def finished(self) -> bool:
        return all(o.finished() for o in self.outputs)


@dataclass(frozen=True)
class CompletionChunk:
    """What an answer grew by. All texts of an answer together are CompletionOutput.text."""

    prompt_index: int  #: of the prompts given
    index: int  #: of the prompt's answers
    text: str  #: whole characters, no part of a stop string; often empty
    token_ids: list[int]
    logprobs: Optional[list[dict[int, Logprob]]]
    finish_reason: Optional[FinishReason]  #: of the answer's last chunk
    stop_reason: Union[int, str, None]
