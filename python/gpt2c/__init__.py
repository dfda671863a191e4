"""gpt2c: an ahead-of-time compiler for GPT-2, and the runtime of its plans.

    import gpt2c
    llm = gpt2c.from_pretrained("gpt2")
    print(llm.generate("She opened the door and")[0].outputs[0].text)
"""
from ._async_llm import AsyncLLM
from ._compile import Evaluation, compile, evaluate
from ._core import __version__
from ._errors import (CorruptError, CudaError, Error, IncompatibleError, InvalidOnnxError, IoError,
                      KernelCompilationError, OutOfMemoryError, QualityError, UnsupportedError,
                      UsageError)
from ._hub import from_pretrained
from ._llm import LLM, Stream
from ._outputs import (CompletionChunk, CompletionOutput, Logprob, RequestOutput, SamplingParams,
                       StructuredOutputsParams)
from ._plan import Plan, Port, Remark, Tokenizer
from ._session import Session, Step
from ._tools import tool_path

__all__ = [
    "AsyncLLM", "CompletionChunk", "CompletionOutput", "CorruptError", "CudaError", "Error",
    "Evaluation", "IncompatibleError", "InvalidOnnxError", "IoError", "KernelCompilationError",
    "LLM", "Logprob",
    "OutOfMemoryError", "Plan", "Port", "QualityError", "Remark", "RequestOutput",
    "SamplingParams", "Session", "Step", "Stream", "StructuredOutputsParams", "Tokenizer",
    "UnsupportedError", "UsageError", "__version__", "compile", "evaluate", "from_pretrained",
    "tool_path",
]
