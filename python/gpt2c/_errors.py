"""What goes wrong, a class for each exit code of the tools (docs/errors.md)."""
from __future__ import annotations


class Error(Exception):
    """Base of all errors of gpt2c. The message names the place and a way out."""

    code: int = 0


class UsageError(Error, ValueError):
    """An argument is wrong, or more than the plan holds."""

    code = 1


class IoError(Error, OSError):
    """A file cannot be read or written."""

    code = 2


class InvalidOnnxError(Error, ValueError):
    """The model breaks the ONNX specification, or is damaged."""

    code = 3


class UnsupportedError(Error):
    """The model, or what is asked of the plan, is not supported."""

    code = 4


class KernelCompilationError(Error):
    """NVRTC is missing, too old, or rejected a kernel."""

    code = 5


class IncompatibleError(Error):
    """The plan does not fit this machine."""

    code = 6


class CorruptError(Error):
    """The plan or the tokenizer is damaged."""

    code = 7


class QualityError(Error):
    """A comparison exceeded its tolerance."""

    code = 8


class CudaError(Error):
    """A CUDA call failed at run time."""

    code = 9


class OutOfMemoryError(Error, MemoryError):
    """Memory ran out; the message has what was asked for and what is free."""

    code = 10


BY_CODE: dict[int, type[Error]] = {
    kind.code: kind
    for kind in (UsageError, IoError, InvalidOnnxError, UnsupportedError, KernelCompilationError,
                 IncompatibleError, CorruptError, QualityError, CudaError, OutOfMemoryError)
}


def error_of(code: int, message: str) -> Error:
    """The error of an exit code."""
    return BY_CODE.get(code, Error)(message)
