"""Texts to ids and back."""
import pytest

import gpt2c
from conftest import SAMPLE


def test_round_trips() -> None:
    tokenizer = gpt2c.Tokenizer.from_files(SAMPLE)
    for text in ("", "She opened the door", "naïve café\n\n  „quoted“ 日本語 🙂", "a\0b"):
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids, errors="strict") == text
        assert tokenizer.encode(text.encode()) == ids
    raw = bytes(range(256))
    assert tokenizer.decode_bytes(tokenizer.encode(raw)) == raw
    assert tokenizer.decode(tokenizer.encode(b"a\xff")) == "a\N{REPLACEMENT CHARACTER}"


def test_special_tokens() -> None:
    tokenizer = gpt2c.Tokenizer.from_files(SAMPLE)
    assert tokenizer.encode("<|endoftext|>") == [0] == [tokenizer.eos_token_id]
    plain = tokenizer.encode("<|endoftext|>", allow_special=False)
    assert len(plain) > 1 and tokenizer.decode(plain) == "<|endoftext|>"
    assert tokenizer.vocab_size == 4096


def test_errors() -> None:
    with pytest.raises(gpt2c.IoError):
        gpt2c.Tokenizer.from_files("no-such-folder")
    tokenizer = gpt2c.Tokenizer.from_files(SAMPLE)
    with pytest.raises(gpt2c.UsageError, match="a text was given"):
        tokenizer.decode("12")  # type: ignore[arg-type]
