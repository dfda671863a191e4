"""Text from plans: whole answers, and answers as they come."""
from __future__ import annotations

import asyncio
import atexit
import codecs
import itertools
import random
from collections import deque
from types import TracebackType
from typing import Any, Iterator, Mapping, NamedTuple, Optional, Sequence, Union, cast

from numpy.typing import NDArray

from . import _core
from ._errors import UsageError
from ._outputs import (CompletionChunk, CompletionOutput, FinishReason, Logprob, RequestOutput,
                       SamplingParams)
from ._plan import PathLike, Plan, Tokenizer, open_plan, open_tokenizer, token_ids
from ._session import Session

atexit.register(_core.cancel_all)  # no generation runs while the process takes itself down

_UNLIMITED = 2**63 - 1  # new tokens: the context ends the answer

#: A text, token ids, {"prompt": text} or {"prompt_token_ids": ids}, or a list of any of them; an
#: array of ids, or of rows of ids. A mapping may have a "cache_salt": such prompts share pages with
#: those of the same salt alone.
Prompts = Union[str, Sequence[int], Mapping[str, Any], Sequence[str], Sequence[Sequence[int]],
                Sequence[Mapping[str, Any]], NDArray[Any]]

#: Messages with "role" and "content", or several lists of them.
Conversations = Union[Sequence[Mapping[str, Any]], Sequence[Sequence[Mapping[str, Any]]]]


class _Job(NamedTuple):
    """An answer that is asked for."""

    prompt_index: int
    output: CompletionOutput
    params: SamplingParams
    ends: list[int]  #: the tokens that end it by themselves


class Stream:
    """Chunks of answers as they come: an iterator, and an asynchronous iterator. The generation
    runs ahead of who reads it. close(), the end of a `with` or `async with` block, any exception
    out of the iterator (Ctrl-C, a cancelled await) and dropping the object end it before the next
    token; after that there are no more chunks, as with a generator."""

    def __init__(self, core: _core.Generation, jobs: list[_Job], outputs: list[RequestOutput],
                 tokenizer: Optional[Tokenizer]):
        self.outputs = outputs  #: of what has been read so far
        self._core = core
        self._jobs = jobs
        self._tokenizer = tokenizer
        self._decoders = [codecs.getincrementaldecoder("utf-8")("replace") for _ in jobs]
        self._ready: deque[CompletionChunk] = deque()
        self._closed = False

    def __iter__(self) -> Iterator[CompletionChunk]:
        return self

    def __next__(self) -> CompletionChunk:
        try:
            while not self._ready and not self._over():
                self._take(self._core.next())
            if self._ready:
                return self._ready.popleft()
        except BaseException:  # its traceback keeps this object, so dropping it ends nothing
            self.close()
            raise
        raise StopIteration

    def __aiter__(self) -> Stream:
        return self

    async def __anext__(self) -> CompletionChunk:
        try:
            while not self._ready and not self._over():
                events = self._core.poll()
                self._take(events)
                if not events and not self._over():
                    await self._readable()
            if self._ready:
                return self._ready.popleft()
        except BaseException:  # as above, but an event loop is not kept waiting
            self._drop()
            raise
        raise StopAsyncIteration

    def close(self) -> None:
        """Ends the generation; what has not been read is dropped."""
        self._drop()
        self._core.cancel()

    def _drop(self) -> None:
        """close(), without waiting for the token that is being computed."""
        self._core.stop()
        self._closed = True
        self._ready.clear()

    async def aclose(self) -> None:
        """close() beside the event loop: it waits for the token that is being computed."""
        await asyncio.get_running_loop().run_in_executor(None, self.close)

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.close()

    async def __aenter__(self) -> Stream:
        return self

    async def __aexit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException],
                        trace: Optional[TracebackType]) -> None:
        await self.aclose()

    def _over(self) -> bool:
        return self._closed or (self._core.ended and not self._failed())

    def _failed(self) -> bool:
        """Raises why the generation failed."""
        self._core.poll()
        return False

    async def _readable(self) -> None:
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()
        loop.add_reader(self._core.fileno(), lambda: ready.done() or ready.set_result(None))
        try:
            await ready
        finally:
            loop.remove_reader(self._core.fileno())

    def _take(self, events: Sequence[_core.Event]) -> None:
        for event in events:
            self._ready.append(self._chunk(event))

    def _chunk(self, event: _core.Event) -> CompletionChunk:
        job = self._jobs[event.request]
        out = job.output
        text = self._decoders[event.request].decode(event.text, final=bool(event.finish))
        tokens = [] if event.token is None else [event.token]
        logprobs = None
        if job.params.logprobs is not None:
            logprobs = [self._ranked(t, *(event.logprobs or (0.0, []))) for t in tokens]
            out.logprobs = (out.logprobs or []) + logprobs
            added = sum(p[t].logprob for p, t in zip(logprobs, tokens))
            out.cumulative_logprob = (out.cumulative_logprob or 0.0) + added
        if event.prompt_logprobs:
            self.outputs[job.prompt_index].prompt_logprobs = [
                None, *(self._ranked(*scored) for scored in event.prompt_logprobs)]
        if tokens:
            if out.first_token_seconds is None:
                out.first_token_seconds = event.seconds
            out.last_token_seconds = event.seconds
        out.text += text
        out.token_ids += tokens
        if event.finish:
            out.finish_reason = cast(FinishReason, event.finish)
            if event.stop_string >= 0:
                out.stop_reason = job.params.stops[event.stop_string]
            elif event.stop_token >= 0 and event.stop_token not in job.ends:
                out.stop_reason = event.stop_token
        return CompletionChunk(job.prompt_index, out.index, text, tokens, logprobs,
                               out.finish_reason, out.stop_reason)

    def _ranked(self, token: int, chosen: float,
                top: list[tuple[int, float]]) -> dict[int, Logprob]:
        ranks = {t: (rank, value) for rank, (t, value) in enumerate(top, 1)}
        ranked: dict[int, tuple[Optional[int], float]] = {token: (None, chosen)}
        ranked.update(ranks)
        return {t: Logprob(value, rank, self._text_of(t)) for t, (rank, value) in ranked.items()}

    def _text_of(self, token: int) -> Optional[str]:
        return self._tokenizer.decode([token]) if self._tokenizer else None


class LLM:
    """A plan that answers prompts.

    All that is asked for at one time, by several threads, coroutines or calls, runs together: the
    plan's engine gives each running answer a token with every step. Only where the plan has no KV
    state in pages for the device, and with `slide`, do calls take turns."""

    def __init__(self, plan: Union[Plan, PathLike], device: str = "auto", *, threads: int = 0,
                 ranks: int = 1, stages: int = 1, micro_rows: int = 0,
                 tokenizer: Union[Tokenizer, PathLike, Any] = None, seed: Optional[int] = None,
                 kv_bytes: int = 0, host_pages: int = 0):
        """`device`, `threads`, `ranks`, `stages`, `micro_rows`, `kv_bytes`, `host_pages`: as of
        Session. `tokenizer`: in place of the plan's, as a folder, a Tokenizer, or a fast one of
        transformers. `seed`: of the seeds that are drawn for requests without one; None: a random
        one."""
        self.plan = open_plan(plan)
        self.session = Session(self.plan, device, threads=threads, ranks=ranks, stages=stages,
                               micro_rows=micro_rows, kv_bytes=kv_bytes, host_pages=host_pages)
        self.tokenizer = self.plan.tokenizer if tokenizer is None else open_tokenizer(tokenizer)
        self._seeds = random.Random(seed) if seed is not None else random.SystemRandom()
        self._ids = itertools.count()
        self._grammars = _core.Grammars(self.tokenizer._core if self.tokenizer else None,
                                        self.plan.vocab_size, self._ends())

    def engine_stats(self) -> Optional[dict[str, int]]:
        """Counts of the engine: requests waiting and running, steps of the device, their rows, new
        tokens, prompt tokens and those of them found in the prefix cache. None until something was
        generated, and where the plan has no engine on the device."""
        return self.session._core.engine_stats()

    def get_tokenizer(self) -> Optional[Tokenizer]:
        return self.tokenizer

    def get_default_sampling_params(self) -> SamplingParams:
        """What the model's makers advise, by generation_config.json; SamplingParams() where they
        say nothing. Nothing takes it by itself."""
        return SamplingParams(**(self.plan.advised_sampling or {}))  # type: ignore[arg-type]

    def generate(self, prompts: Prompts,
                 sampling_params: Union[SamplingParams, Sequence[SamplingParams], None] = None, *,
                 slide: Optional[int] = None) -> list[RequestOutput]:
        """The answers to each prompt, in order.

        `sampling_params`: for all prompts, or one for each. `slide`: a sequence that fills the
        context goes on without the older half of what lies behind its first `slide` tokens; without
        it such an answer ends with the finish reason "context"."""
        with self.stream(prompts, sampling_params, slide=slide) as stream:
            for _ in stream:
                pass
        return stream.outputs

    def chat(self, messages: Conversations,
             sampling_params: Union[SamplingParams, Sequence[SamplingParams], None] = None, *,
             chat_template: Optional[str] = None, add_generation_prompt: bool = True,
             tools: Optional[Sequence[Mapping[str, Any]]] = None,
             chat_template_kwargs: Optional[Mapping[str, Any]] = None) -> list[RequestOutput]:
        """The next message of a conversation, or of each of several: its answers, as of generate().

        A conversation is a list of messages with "role" and "content"; the model's chat template
        makes a prompt of it, or `chat_template`, in Jinja. What a conversation begins with and an
        earlier one had is found in the engine's prefix cache, in pages, and not computed again."""
        return self.generate(
            self._chats(messages, chat_template=chat_template, tools=tools,
                        add_generation_prompt=add_generation_prompt,
                        **(chat_template_kwargs or {})), sampling_params)

    async def achat(self, messages: Conversations,
                    sampling_params: Union[SamplingParams, Sequence[SamplingParams],
                                           None] = None, *,
                    chat_template: Optional[str] = None, add_generation_prompt: bool = True,
                    tools: Optional[Sequence[Mapping[str, Any]]] = None,
                    chat_template_kwargs: Optional[Mapping[str, Any]] = None
                    ) -> list[RequestOutput]:
        """chat() for event loops."""
        return await self.agenerate(
            self._chats(messages, chat_template=chat_template, tools=tools,
                        add_generation_prompt=add_generation_prompt,
                        **(chat_template_kwargs or {})), sampling_params)

    async def agenerate(self, prompts: Prompts,
                        sampling_params: Union[SamplingParams, Sequence[SamplingParams],
                                               None] = None, *,
                        slide: Optional[int] = None) -> list[RequestOutput]:
        """generate() for event loops."""
        async with self.stream(prompts, sampling_params, slide=slide) as stream:
            async for _ in stream:
                pass
        return stream.outputs

    def stream(self, prompts: Prompts,
               sampling_params: Union[SamplingParams, Sequence[SamplingParams], None] = None, *,
               slide: Optional[int] = None) -> Stream:
        """The same answers as they come, for `for` and `async for`."""
        given = self._prompts(prompts)
        params = _params_of(sampling_params, len(given))
        if slide is not None and slide < 0:
            raise UsageError(f"slide is {slide}; it is at least 0")
        if slide is not None and any(p.max_tokens is None for p in params):
            raise UsageError("max_tokens=None ends where the context is full, which slide prevents")
        jobs, requests, outputs = [], [], []
        ends = self._ends()
        for i, ((text, ids, salt), p) in enumerate(zip(given, params)):
            answers = [CompletionOutput(index) for index in range(p.n)]
            scored: Optional[list[Optional[dict[int, Logprob]]]]
            scored = None if p.prompt_logprobs is None else [None]
            outputs.append(RequestOutput(str(next(self._ids)), text, ids, answers, scored))
            first = p.seed if p.seed is not None else self._seeds.getrandbits(62)
            for answer in answers:
                jobs.append(_Job(i, answer, p, ends))
                requests.append(self._request(ids, p, first, answer.index, salt))
        core = _core.Generation(self.session._core,
                                self.tokenizer._core if self.tokenizer else None, requests,
                                -1 if slide is None else slide)
        try:
            return Stream(core, jobs, outputs, self.tokenizer)
        except BaseException:
            core.cancel()
            raise

    def _chats(self, conversations: Any, **more: Any) -> list[dict[str, Any]]:
        """Prompts of conversations: texts of theirs, with the tokens that the template means."""
        if not self.tokenizer:
            raise UsageError("the plan has no tokenizer, which a chat needs: give "
                             "LLM(tokenizer=FOLDER), or compile the plan with tokenizer=FOLDER")
        if not conversations:
            raise UsageError("a conversation has no message")
        if isinstance(conversations[0], Mapping):
            conversations = [conversations]
        plan = self.plan.tokenizer
        own = self.tokenizer.has_chat_template or not plan or not plan.has_chat_template
        teller = self.tokenizer if own else plan  # a tokenizer given in its place may have none
        texts = [teller.apply_chat_template(c, **more) for c in conversations]
        return [{"prompt": t, "prompt_token_ids": self.tokenizer.encode(t)} for t in texts]

    def _prompts(self, prompts: Any) -> list[tuple[Optional[str], list[int], str]]:
        """Text, ids and salt of each."""
        if hasattr(prompts, "tolist"):
            prompts = prompts.tolist()
        if isinstance(prompts, (str, Mapping)) or (len(prompts)
                                                   and hasattr(prompts[0], "__index__")):
            prompts = [prompts]
        return [(*self._prompt(i, p), _salt_of(p)) for i, p in enumerate(prompts, 1)]

    def _prompt(self, number: int, prompt: Any) -> tuple[Optional[str], list[int]]:
        if isinstance(prompt, Mapping):
            known = [k for k in ("prompt_token_ids", "prompt") if prompt.get(k) is not None]
            if not known:
                raise UsageError(f"prompt {number} is a mapping with neither 'prompt_token_ids' "
                                 "nor 'prompt'")
            if len(known) == 2 and isinstance(prompt["prompt"], str):
                return prompt["prompt"], token_ids(prompt["prompt_token_ids"])
            prompt = prompt[known[0]]
        if not isinstance(prompt, str):
            ids = token_ids(prompt)
            if not ids:
                raise UsageError(f"prompt {number} is empty: there is nothing to continue")
            return (self.tokenizer.decode(ids) if self.tokenizer else None), ids
        if not self.tokenizer:
            raise UsageError("the plan has no tokenizer: give token ids, LLM(tokenizer=FOLDER), or "
                             "compile the plan with tokenizer=FOLDER")
        if not prompt:
            raise UsageError(f"prompt {number} is empty: there is nothing to continue")
        return prompt, self.tokenizer.encode(prompt, add_special_tokens=True)

    def _ends(self) -> list[int]:
        """The tokens that end an answer, as the plan or else the tokenizer says."""
        ends = self.plan.eos_token_ids
        if not ends and self.tokenizer and self.tokenizer.eos_token_id is not None:
            ends = [self.tokenizer.eos_token_id]
        return [token for token in ends if token < self.plan.vocab_size]

    def _request(self, ids: list[int], p: SamplingParams, seed: int, index: int,
                 salt: str) -> _core.Request:
        """The index-th of a prompt's answers; the first one scores the prompt for all."""
        scores = p.prompt_logprobs is not None and index == 0
        if p.stops and not self.tokenizer:
            raise UsageError("stop strings need a tokenizer, and the plan has none")
        if p.bad_words and not self.tokenizer:
            raise UsageError("bad_words need a tokenizer, and the plan has none")
        bad = [w.encode() for w in p.bad_words or ()]
        ends = self._ends()
        stop_ids = list(p.stop_token_ids or ()) + ([] if p.ignore_eos else ends)
        return _core.Request(
            prompt=ids, temperature=p.temperature, top_k=max(p.top_k, 0) if p.top_k >= -1 else -2,
            top_p=p.top_p, min_p=p.min_p, repetition_penalty=p.repetition_penalty,
            frequency_penalty=p.frequency_penalty, presence_penalty=p.presence_penalty,
            logit_bias=list((p.logit_bias or {}).items()), seed=seed + index,
            logprobs=-1 if p.logprobs is None else p.logprobs,
            max_tokens=_UNLIMITED if p.max_tokens is None else p.max_tokens, stop_ids=stop_ids,
            stops=[s.encode() for s in p.stops], include_stop=p.include_stop_str_in_output,
            hidden_ids=ends if p.skip_special_tokens else [], min_tokens=p.min_tokens,
            bad_words=_core.bad_words(self.tokenizer._core, bad) if bad and self.tokenizer else [],
            allowed_ids=list(p.allowed_token_ids or ()), constraint=self._constraint(p),
            cache_salt=salt, prompt_logprobs=p.prompt_logprobs or 0 if scores else -1)

    def _constraint(self, p: SamplingParams) -> Optional[_core.Constraint]:
        """Compiled once for equal texts, as long as it is among those used last."""
        if p.structured_outputs is None:
            return None
        kind, text, choices = p.structured_outputs._text()
        return self._grammars.compile(kind, text.encode(), [c.encode() for c in choices])


def _salt_of(prompt: Any) -> str:
    return str(prompt.get("cache_salt") or "") if isinstance(prompt, Mapping) else ""


def _params_of(given: Union[SamplingParams, Sequence[SamplingParams], None],
               prompts: int) -> list[SamplingParams]:
    if given is None or isinstance(given, SamplingParams):
        return [given or SamplingParams()] * prompts
    if len(given) != prompts:
        raise UsageError(f"{len(given)} sets of sampling parameters are given for {prompts} "
                         "prompts")
    return list(given)
