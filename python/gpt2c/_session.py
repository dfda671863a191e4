"""A plan on a device, step by step."""
from __future__ import annotations

import logging
import os
from typing import Any, Mapping, NamedTuple, Optional, Sequence, Union

import numpy as np
from numpy.typing import NDArray

from . import _core
from ._errors import UsageError
from ._plan import PathLike, Plan, open_plan, token_ids

logger = logging.getLogger("gpt2c")

Array = Any  #: what has __dlpack__ or the buffer protocol, or what numpy.asarray takes


class Step(NamedTuple):
    """What prefill and extend give."""

    next: NDArray[np.int32]  #: the most likely token behind each sequence
    logits: Optional[NDArray[np.float32]]  #: [batch, vocab] behind that choice, where asked for


class Session:
    """One plan on one device, with one KV state.

    Calls from several threads run one after the other; while the device works the GIL is free. A
    batch that prefill begins ends with the next prefill, forward or generation of the session: who
    shares a session between threads gives each its own for stepping. Ctrl-C acts behind the call
    that runs."""

    def __init__(self, plan: Union[Plan, PathLike], device: str = "auto", *, threads: int = 0,
                 ranks: int = 1, stages: int = 1, micro_rows: int = 0, kv_bytes: int = 0,
                 host_pages: int = 0):
        """`device`: "cuda" (the first GPU), "cuda:N", "cuda:0,1" (a rank on each, of a plan for as
        many), "cpu", or "auto", the first GPU where the plan has code for it, else the CPU.
        `threads`: of the CPU device; 0: one for each core.
        `ranks`: so many share the layers on the CPU device, where the plan is for as many
        (`flags=["--tensor-parallel=2"]` of compile).
        `stages`: so many stand one behind the other, each with some of the layers: on the CPU
        device of `ranks` each, or the GPUs that `device` names are dealt to them; any plan with a
        KV state. `micro_rows`: on which a stage works at a time; 0: as many as the device thinks
        best. `kv_bytes`: of the pages of the engine that an
        LLM generates with; 0: as the plan or the device says. `host_pages`: of it in host memory,
        where answers that find no room on the device take turns."""
        self.plan = open_plan(plan)
        if kv_bytes < 0 or host_pages < 0:
            raise UsageError("kv_bytes and host_pages are at least 0")
        self._core = _core.Session(self.plan._core, device, threads, ranks, stages, micro_rows)
        self._core.set_engine_memory(kv_bytes, host_pages)
        if self._core.fallback:
            level = logging.WARNING if self.plan.has_gpu_code else logging.INFO
            logger.log(level, "running on the CPU: %s", self._core.fallback.split("\n")[0])
        if self._core.device_note:
            logger.warning("%s", self._core.device_note)

    def __repr__(self) -> str:
        return f"<gpt2c.Session of '{self.plan.path}' on {self.device_name}>"

    @property
    def device(self) -> str:
        """"cuda" or "cpu"."""
        return self._core.device

    @property
    def device_name(self) -> str:
        """For people: "NVIDIA H200", "CPU, 2 threads"."""
        return self._core.device_name

    @property
    def has_kv_state(self) -> bool:
        """Whether prefill, extend and decode work."""
        return self._core.has_kv_state

    @property
    def lengths(self) -> list[int]:
        """Tokens that the KV state holds of each sequence of the current batch."""
        return self._core.lengths

    def forward(self, inputs: Union[Mapping[str, Array], Sequence[Array], NDArray[Any]]
                ) -> dict[str, NDArray[Any]]:
        """Runs the plan as the exported graph: an array for each of plan.inputs, by name or in
        order, or the only one; an array for each of plan.outputs.

        An array is anything with __dlpack__ or the buffer protocol in host memory, of any layout.
        It is copied once, into the runtime's memory; integers of another width, and floats of
        another width, are converted. Results are not copied: each array is the runtime's memory,
        which it keeps alive, and goes to other libraries by its __dlpack__."""
        ports = self.plan.inputs
        if isinstance(inputs, Mapping):
            missing = [p.name for p in ports if p.name not in inputs]
            unknown = [n for n in inputs if n not in {p.name for p in ports}]
            if missing or unknown:
                raise UsageError("the graph's inputs are " + ", ".join(p.name for p in ports)
                                 + "; " + "; ".join([f"'{n}' is missing" for n in missing]
                                                    + [f"there is no '{n}'" for n in unknown]))
            given = [inputs[p.name] for p in ports]
        elif hasattr(inputs, "__dlpack__"):
            given = [inputs]
        else:
            given = list(inputs)
        results = self._core.forward([as_array(g) for g in given])
        return {p.name: r for p, r in zip(self.plan.outputs, results)}

    def logits(self, sequences: Any) -> NDArray[np.float32]:
        """The logits behind every token of sequences of one length, [batch, tokens, vocab], as the
        plan computes them: not narrowed to the type that the exported graph declares."""
        return self._core.sequence_logits(rows_of(sequences))

    def prefill(self, sequences: Any, past: Optional[Sequence[int]] = None, *,
                logits: bool = False) -> Step:
        """Puts sequences into the KV state. Sequence i follows the first past[i] tokens that the
        state holds of it; without `past` all begin anew. `sequences`: rows of token ids, which may
        differ in length, or an array [batch, tokens]; ids are copied."""
        rows = rows_of(sequences)
        return Step(*self._core.prefill(rows, token_ids(past) if past is not None else [], logits))

    def extend(self, tokens: Any, *, logits: bool = False) -> Step:
        """One step: a token behind each sequence of the current batch."""
        return Step(*self._core.extend(token_ids(tokens), logits))

    def decode(self, steps: int = 1) -> NDArray[np.int32]:
        """Greedy steps of all sequences, the choice made on the device: each appends the last
        choice to the state and makes the next one. Returns the new choices, [steps, batch]."""
        return self._core.decode(steps)

    def save_state(self, path: PathLike) -> None:
        """Writes the KV state of the current batch, with its tokens, to a file."""
        self._core.save_state(os.fspath(path))

    def load_state(self, path: PathLike) -> None:
        """Makes the batch in such a file the current one: of the same plan, by any device and any
        number of ranks. prefill goes on behind it, with `past=session.lengths`."""
        self._core.load_state(os.fspath(path))


def as_array(value: Array) -> Any:
    if hasattr(value, "__dlpack__") and not isinstance(value, np.ndarray):
        return value
    array = np.asarray(value)
    # DLPack has no read-only arrays for some versions of NumPy, and knows native byte order alone.
    return array.astype(array.dtype.newbyteorder("=")) if not array.dtype.isnative else array


def rows_of(sequences: Any) -> list[list[int]]:
    if hasattr(sequences, "__dlpack__") and not hasattr(sequences, "tolist"):
        sequences = np.from_dlpack(sequences)
    rows = sequences.tolist() if hasattr(sequences, "tolist") else list(sequences)
    if rows and isinstance(rows[0], int):
        raise UsageError("one sequence is given by itself; put it into a list: [ids]")
    return [token_ids(row) for row in rows]
