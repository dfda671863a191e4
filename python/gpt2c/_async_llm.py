"""AsyncLLM: requests of an event loop, each by itself, as vLLM's."""
from __future__ import annotations

from types import TracebackType
from typing import Any, AsyncIterator, Mapping, Optional, Sequence, Union

from ._errors import UsageError
from ._llm import LLM, Stream
from ._outputs import RequestOutput, SamplingParams

Prompt = Union[str, Sequence[int], Mapping[str, Any]]


class AsyncLLM:
    """An LLM for event loops: what is asked for while other requests run joins them."""

    def __init__(self, *args: Any, **kwargs: Any):
        """As LLM."""
        self.llm = LLM(*args, **kwargs)
        self._streams: dict[str, Stream] = {}

    async def generate(self, prompt: Prompt, sampling_params: Optional[SamplingParams] = None,
                       request_id: Optional[str] = None) -> AsyncIterator[RequestOutput]:
        """The answers so far, each time that they have grown; the last time they are finished.
        Leaving the iterator ends the request."""
        if request_id in self._streams:
            raise UsageError(f"a request '{request_id}' runs already")
        stream = self.llm.stream([prompt], sampling_params)
        output = stream.outputs[0]
        if request_id is not None:
            output.request_id = request_id
        self._streams[output.request_id] = stream
        try:
            async with stream:
                async for _ in stream:
                    yield output
        finally:
            del self._streams[output.request_id]

    async def abort(self, request_id: str) -> None:
        """Ends a request, whose iterator ends; nothing where it has ended."""
        if request_id in self._streams:
            await self._streams[request_id].aclose()

    def shutdown(self) -> None:
        """Ends all requests."""
        for stream in list(self._streams.values()):
            stream.close()

    async def __aenter__(self) -> AsyncLLM:
        return self

    async def __aexit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException],
                        trace: Optional[TracebackType]) -> None:
        self.shutdown()
