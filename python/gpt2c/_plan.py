"""Plans and their tokenizers."""
from __future__ import annotations

import json
import os
import tempfile
from dataclasses import dataclass
from typing import Any, Literal, Mapping, NamedTuple, Optional, Sequence, Union

from . import _core
from ._errors import UsageError

PathLike = Union[str, "os.PathLike[str]"]


class Port(NamedTuple):
    """An input or output of the exported graph."""

    name: str
    dtype: str  #: "f32", "i64", ...


@dataclass(frozen=True)
class Remark:
    """What the compiler decided, or could not do."""

    stage: str  #: the pass
    severity: str  #: "note" or "missed"
    message: str
    nodes: tuple[str, ...]  #: ONNX nodes it is about
    launches: int  #: what it costs in a step of one sequence, in launches
    bytes: int  #: and in bytes


class Tokenizer:
    """The tokenizer of a model. All methods may be called from several threads."""

    def __init__(self, core: _core.Tokenizer, chat_template: Optional[str] = None,
                 special_tokens: Optional[Mapping[str, str]] = None):
        """`chat_template`, in Jinja, and the names of tokens that it reads, as "bos_token": of a
        tokenizer whose files have none."""
        self._core = core
        self._template = chat_template
        self._special = dict(special_tokens or {})

    @staticmethod
    def from_files(path: PathLike) -> Tokenizer:
        """Reads the tokenizer of a folder: tokenizer.json, vocab.json and merges.txt, or
        tokenizer.model."""
        return Tokenizer(_core.Tokenizer.from_files(os.fspath(path)))

    def encode(self, text: Union[str, bytes], *, allow_special: bool = True,
               add_special_tokens: bool = False) -> list[int]:
        """Token ids. Special tokens in the text, such as <|endoftext|>, become their one id; with
        `allow_special=False`, right for text from strangers, they are text like any other.
        `add_special_tokens`: what the tokenizer puts around a text, such as the token that begins
        it, is added."""
        data = text.encode() if isinstance(text, str) else text
        return self._core.encode_bytes(data, allow_special, add_special_tokens)

    def apply_chat_template(self, messages: Sequence[Mapping[str, Any]], *,
                            chat_template: Optional[str] = None,
                            add_generation_prompt: bool = True,
                            tools: Optional[Sequence[Mapping[str, Any]]] = None,
                            **more: Any) -> str:
        """The prompt that the model's chat template makes of a conversation, messages with "role"
        and "content". `chat_template`: a Jinja template in its place; `more`: what else the
        template reads. UnsupportedError where there is no template, UsageError where it refuses
        the conversation."""
        context = {**self._special, "messages": list(messages),
                   "add_generation_prompt": add_generation_prompt,
                   "tools": None if tools is None else list(tools), **more}
        try:
            data = json.dumps(context, ensure_ascii=False).encode()
        except (TypeError, ValueError) as error:
            raise UsageError(f"a chat is told in what JSON has: {error}") from error
        source = chat_template or self._template or ""
        return self._core.render_chat(data, source.encode()).decode()

    @property
    def has_chat_template(self) -> bool:
        return self._template is not None or self._core.has_chat_template

    def decode(self, ids: Sequence[int],
               errors: Literal["replace", "strict", "ignore"] = "replace") -> str:
        """The text of tokens. `errors`: what becomes of bytes that are no UTF-8, as in
        bytes.decode."""
        return self.decode_bytes(ids).decode("utf-8", errors)

    def decode_bytes(self, ids: Sequence[int]) -> bytes:
        """The bytes of tokens; ids that no token has add nothing."""
        return self._core.decode_bytes(token_ids(ids))

    @property
    def vocab_size(self) -> int:
        """The largest id + 1."""
        return self._core.vocab_size

    @property
    def eos_token_id(self) -> Optional[int]:
        """The token that ends a text."""
        return known(self._core.eos_token_id)


class Plan:
    """An open, verified plan. Immutable; may be used from several threads. The file must not be
    written while it is open. Weights are mapped, not read into memory of the process."""

    def __init__(self, path: PathLike, *, verify_weights: bool = True):
        """`verify_weights=False` skips the checksum of the weights, which reads all of them."""
        self.path = os.fspath(path)
        self._core = _core.Plan(self.path, verify_weights)
        core = self._core.core_tokenizer
        self.tokenizer: Optional[Tokenizer] = Tokenizer(core) if core else None
        self.log = ""  #: what the compiler said, where compile() made the plan
        self._folder: Optional[Any] = None  # a temporary folder that ends with the plan

    def __repr__(self) -> str:
        return (f"<gpt2c.Plan '{self.path}': {self.model_name}, {self.precision}, context "
                f"{self.max_context}, {self.file_bytes} bytes>")

    @property
    def model_name(self) -> str:
        return self._core.model_name

    @property
    def precision(self) -> str:
        """"fp32", "fp16" or "bf16"."""
        return self._core.precision

    @property
    def compiler_version(self) -> str:
        return self._core.compiler_version

    @property
    def flags(self) -> list[str]:
        """The compiler's flags that the plan was made with."""
        return self._core.flags

    @property
    def vocab_size(self) -> int:
        return self._core.vocab_size

    @property
    def eos_token_id(self) -> Optional[int]:
        """The token that ends a text."""
        if self._core.eos_token >= 0 or not self.tokenizer:
            return known(self._core.eos_token)
        return self.tokenizer.eos_token_id

    @property
    def eos_token_ids(self) -> list[int]:
        """All tokens that end an answer, as the model's folder said."""
        ends = self.tokenizer._core.ends if self.tokenizer else []
        first = self.eos_token_id
        return ends if first is None or first in ends else [first, *ends]

    @property
    def advised_sampling(self) -> Optional[dict[str, float]]:
        """What the model's makers advise, by generation_config.json: fields of SamplingParams.
        It is taken by who asks for it alone, as LLM.get_default_sampling_params() does."""
        return self.tokenizer._core.advice if self.tokenizer else None

    @property
    def max_batch(self) -> int:
        """Sequences at once; 0: the plan has no KV state."""
        return self._core.max_batch

    @property
    def max_context(self) -> int:
        """Tokens of one sequence; 0: the plan has no KV state."""
        return self._core.max_context

    @property
    def file_bytes(self) -> int:
        return self._core.file_bytes

    @property
    def has_gpu_code(self) -> bool:
        return self._core.has_gpu_code

    @property
    def inputs(self) -> list[Port]:
        """Of the exported graph, in the order of Session.forward."""
        return [Port(*p) for p in self._core.input_ports]

    @property
    def outputs(self) -> list[Port]:
        return [Port(*p) for p in self._core.output_ports]

    @property
    def remarks(self) -> list[Remark]:
        """What the compiler remarked."""
        return [Remark(stage, severity, message, tuple(nodes), launches, size)
                for stage, severity, message, nodes, launches, size in self._core.remark_rows]


def open_plan(plan: Union[Plan, PathLike]) -> Plan:
    """A plan, or the one at a path."""
    return plan if isinstance(plan, Plan) else Plan(plan)


def open_tokenizer(tokenizer: Any) -> Tokenizer:
    """A Tokenizer, the one in a folder, or what a fast tokenizer of transformers is made of."""
    if isinstance(tokenizer, Tokenizer):
        return tokenizer
    if isinstance(tokenizer, (str, os.PathLike)):
        return Tokenizer.from_files(tokenizer)
    backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
    if not hasattr(backend, "to_str"):
        raise UsageError(f"a tokenizer is a folder, a gpt2c.Tokenizer or a fast tokenizer of "
                         f"transformers, not a {type(tokenizer).__name__}")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "tokenizer.json")
        with open(path, "w", encoding="utf-8") as file:
            file.write(backend.to_str())
        core = _core.Tokenizer.from_files(path)
    template = getattr(tokenizer, "chat_template", None)
    special = getattr(tokenizer, "special_tokens_map", {})
    return Tokenizer(core, template if isinstance(template, str) else None,
                     {name: text for name, text in special.items() if isinstance(text, str)})


def known(token: int) -> Optional[int]:
    return token if token >= 0 else None


def token_ids(ids: Any) -> list[int]:
    """A list of ints from a sequence or an array of integers."""
    if hasattr(ids, "tolist"):
        ids = ids.tolist()
    if isinstance(ids, (str, bytes)):
        raise UsageError("token ids are a sequence of integers, a text was given")
    out = list(ids)
    for i in out:
        if not isinstance(i, int) and not hasattr(i, "__index__"):
            raise UsageError(f"'{i}' is no token id")
    return [int(i) for i in out]
