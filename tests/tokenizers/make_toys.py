#!/usr/bin/env python3
"""Small tokenizers of many kinds, trained by the `tokenizers` package of PyPI on text that this
script makes.
    make_toys.py OUT
Writes OUT/<name>/tokenizer.json: those that families of models use, and one for each kind of step.
Exit code 77: the package is absent."""
import json
import pathlib
import random
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from skip import skip  # noqa: E402

try:
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
    from tokenizers import pre_tokenizers, processors, trainers
except ImportError:
    skip("Python has no tokenizers; scripts/setup.sh --tests installs it")

N, P, D = normalizers, pre_tokenizers, decoders
TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
HEAD = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
LLAMA3, QWEN = HEAD + r"\p{N}{1,3}" + TAIL, HEAD + r"\p{N}" + TAIL
CASED = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
         r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
         r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}"
         r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
HAN = (r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*"
       r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+|\p{N}{1,3}+" + TAIL)


def corpus():
    rng = random.Random(5)
    syllables = ["the", "wor", "ld", "he", "llo", "ing", "tion", "re", "un", "ca", "fé", "na",
                 "ïve", "日本", "語", "カ", "한국", "Hel", "Wo", "der", "ß", "'s", "12", "3", "ﬁ",
                 "e\u0301", "हि", "न्दी", "😀", "ж", "да", "(", ")", "=", "."]
    for _ in range(3000):
        words = ["".join(rng.choices(syllables, k=rng.randrange(1, 4)))
                 for _ in range(rng.randrange(1, 9))]
        yield rng.choice([" ", " ", "  ", "\n"]).join(words)


def bpe(normalizer=None, pre=None, decoder=None, size=600, alphabet=None,
        special=("<s>", "</s>", "<unk>"), **model):
    tokenizer = Tokenizer(models.BPE(**model))
    if normalizer:
        tokenizer.normalizer = normalizer
    if pre:
        tokenizer.pre_tokenizer = pre
    affixes = {key: model[key] for key in ("continuing_subword_prefix", "end_of_word_suffix")
               if key in model}
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet or [],
                                  special_tokens=list(special), show_progress=False, **affixes)
    tokenizer.train_from_iterator(corpus(), trainer)
    if decoder:
        tokenizer.decoder = decoder
    return tokenizer


def byte_level(normalizer=None, pre=None, **more):
    pre = pre or P.ByteLevel(add_prefix_space=False)
    return bpe(normalizer, pre, D.ByteLevel(), alphabet=P.ByteLevel.alphabet(), **more)


def split(regex, how="isolated", **more):
    return P.Sequence([P.Split(Regex(regex), how, **more),
                       P.ByteLevel(add_prefix_space=False, use_regex=False)])


def edited(tokenizer, change):
    data = json.loads(tokenizer.to_str())
    change(data)
    return Tokenizer.from_str(json.dumps(data))


def with_bytes(tokenizer, **model):
    """The tokens <0x00> to <0xFF> and byte_fallback."""
    def change(data):
        vocab = data["model"]["vocab"]
        if isinstance(vocab, dict):
            for byte in range(256):
                vocab.setdefault(f"<0x{byte:02X}>", len(vocab))
        else:
            vocab += [[f"<0x{byte:02X}>", 0.0] for byte in range(256)]
        data["model"].update(byte_fallback=True, **model)
    return edited(tokenizer, change)


def template(tokenizer, single, *names):
    ids = [(name, tokenizer.token_to_id(name)) for name in names]
    tokenizer.post_processor = processors.TemplateProcessing(single=single, special_tokens=ids)
    return tokenizer


def unigram(normalizer=None, pre=None, decoder=None, unknown="<unk>"):
    tokenizer = Tokenizer(models.Unigram())
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre or P.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=400, unk_token=unknown, show_progress=False,
                                      special_tokens=["<pad>", "</s>", "<unk>"])
    tokenizer.train_from_iterator(corpus(), trainer)
    tokenizer.decoder = decoder or D.Metaspace()
    return tokenizer


SPACE_DECODER = D.Sequence([D.Replace("▁", " "), D.ByteFallback(), D.Fuse(), D.Strip(" ", 1, 0)])


def families():
    yield "gpt2", byte_level(special=["<|endoftext|>"])
    yield "opt", template(byte_level(), "</s> $A", "</s>")
    yield "llama3", template(byte_level(pre=split(LLAMA3), special=["<|begin_of_text|>"]),
                             "<|begin_of_text|> $A", "<|begin_of_text|>")
    merges = byte_level(pre=split(LLAMA3))
    yield "llama3-ignore-merges", edited(
        merges, lambda d: d["model"].update(ignore_merges=True, merges=d["model"]["merges"][::3]))
    yield "qwen2", byte_level(N.NFC(), split(QWEN))
    yield "cased", byte_level(pre=split(CASED))
    yield "han", byte_level(pre=split(HAN))
    yield "smollm", byte_level(pre=P.Sequence([P.Digits(True), P.ByteLevel(False)]))
    neox = byte_level(N.NFC())
    neox.add_tokens([AddedToken(" " * n, normalized=True) for n in range(2, 8)])
    neox.add_special_tokens(["<|padding|>"])
    yield "neox", neox
    yield "falcon", byte_level(pre=P.Sequence([
        P.Punctuation("contiguous"), P.ByteLevel(False), P.Digits(False),
        P.Split(Regex("[0-9][0-9][0-9]"), "isolated")]))
    yield "deepseek", byte_level(pre=P.Sequence([
        P.Split(Regex(r"\p{N}{1,3}"), "isolated"), P.Split(Regex("[一-龥぀-ゟ゠-ヿ]+"), "isolated"),
        P.Split(Regex(r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?"
                      r"[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"),
                "isolated"),
        P.ByteLevel(False, use_regex=False)]))
    llama2 = N.Sequence([N.Prepend("▁"), N.Replace(" ", "▁")])
    base = bpe(llama2, P.Split("▁", "merged_with_next"), SPACE_DECODER, unk_token="<unk>",
               fuse_unk=True)
    base.pre_tokenizer = None
    base = edited(base, lambda d: d.update(pre_tokenizer=None))
    base = with_bytes(base)
    base.add_special_tokens(["<s>", "</s>", "<unk>"])
    base.add_tokens([AddedToken("▁<x>", normalized=False), AddedToken("<y>", normalized=True)])
    yield "llama2", template(base, "<s> $A", "<s>")

    def metaspace_first(data):
        data["normalizer"] = None
        data["pre_tokenizer"] = {"type": "Metaspace", "replacement": "▁",
                                 "prepend_scheme": "first", "split": False}
    yield "mistral", edited(base, metaspace_first)

    def gemma(data):
        data["normalizer"] = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
        data["pre_tokenizer"] = {"type": "Split", "pattern": {"String": " "},
                                 "behavior": "MergedWithPrevious", "invert": False}
        data["decoder"]["decoders"].pop()
        data["post_processor"]["single"].append({"SpecialToken": {"id": "<s>", "type_id": 0}})
    yield "gemma", edited(base, gemma)
    yield "unknown", edited(base, lambda d: d["model"].update(byte_fallback=False))
    yield "unknown-apart", edited(
        base, lambda d: d["model"].update(byte_fallback=False, fuse_unk=False))
    yield "dropped", edited(
        base, lambda d: d["model"].update(byte_fallback=False, unk_token=None))
    t5 = unigram(N.Sequence([N.Nmt(), N.NFKC(), N.Replace(Regex(" {2,}"), " ")]))
    yield "t5", template(t5, "$A </s>", "</s>")
    yield "unigram-bytes", with_bytes(unigram(decoder=SPACE_DECODER))
    yield "unigram-whole", unigram(N.Replace(" ", "▁"), P.Split("|", "removed"),
                                   D.Replace("▁", " "))
    yield "roberta", byte_level(pre=P.ByteLevel(True))


def steps():
    for how in ("removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"):
        yield "split-" + how, byte_level(pre=split(r"\s+|[aeiou]|\d*", how))
        yield "invert-" + how, byte_level(pre=split(r"\p{L}+\d?", how, invert=True))
        yield "string-" + how, byte_level(pre=P.Sequence(
            [P.Split("e", how), P.Punctuation(how), P.ByteLevel(False)]))
    for name, step in {
            "whitespace": P.Whitespace(), "whitespace-split": P.WhitespaceSplit(),
            "bert": P.BertPreTokenizer(), "digits": P.Digits(False), "delimiter":
            P.CharDelimiterSplit("l"), "punctuation": P.Punctuation(), "length": P.FixedLength(4),
            "metaspace": P.Metaspace("▁", "never"), "metaspace-first":
            P.Sequence([P.Digits(True), P.Metaspace("▁", "first")])}.items():
        yield "pre-" + name, bpe(pre=step, unk_token="<unk>")
    for name, step in {
            "nfd": N.NFD(), "nfkd": N.NFKD(), "nfkc": N.NFKC(), "lowercase": N.Lowercase(),
            "accents": N.Sequence([N.NFD(), N.StripAccents()]), "strip": N.Strip(), "left":
            N.Strip(right=False), "nmt": N.Nmt(), "prepend": N.Prepend("_"), "regex":
            N.Replace(Regex(r"(?<=a)\s|[[:upper:]]"), "~"), "bytes": N.ByteLevel()}.items():
        yield "normal-" + name, bpe(step, P.Metaspace(), D.Metaspace(), unk_token="<unk>")
    yield "suffix", bpe(pre=P.WhitespaceSplit(), decoder=D.BPEDecoder("</w>"), unk_token="<unk>",
                        end_of_word_suffix="</w>")
    yield "prefix", bpe(pre=P.WhitespaceSplit(), decoder=D.WordPiece("##", False),
                        unk_token="<unk>", continuing_subword_prefix="##")
    yield "prefix-cleaned", bpe(pre=P.Whitespace(), decoder=D.WordPiece("##", True),
                                unk_token="<unk>", continuing_subword_prefix="##")
    yield "suffix-ignored", edited(
        bpe(pre=P.Whitespace(), decoder=D.BPEDecoder("</w>"), unk_token="<unk>",
            end_of_word_suffix="</w>"), lambda d: d["model"].update(ignore_merges=True))
    yield "bytes-then-space", with_bytes(unigram(
        pre=P.Split("|", "removed"), decoder=D.Sequence([D.ByteFallback(), D.Metaspace()])))
    yield "strip-each", bpe(pre=P.Metaspace(), unk_token="<unk>", decoder=D.Sequence(
        [D.Replace(Regex("▁+"), "_"), D.Strip("_", 1, 1), D.Fuse(), D.Replace("e", "E")]))
    for regex in (r"(?i)hel+o|(?<x>w)or", r"a(?i)b|HE|(?:x|y)", r"[^\W\d_]+",
                  r"\h{2,}+\b", r"^.|.$",
                  r"[[:alpha:]&&[^aeiou]]+|[\s[:punct:]]", r"\p{^L}+", r"(?m:a.)|\x{65}|\u0301",
                  r"\S{2,3}?|\s{,2}", r"(?>l+)o?", r"\p{Hiragana}|\p{Greek}+", r"\bth|\Bo",
                  r"\w+|[^\w\s]+"):
        yield f"regex-{abs(hash_of(regex))}", byte_level(pre=split(regex))


def hash_of(text):
    value = 5381
    for c in text:
        value = (value * 33 + ord(c)) % 1000003
    return value


def flags():
    tokenizer = byte_level(N.Lowercase())
    for i in range(32):
        tokenizer.add_tokens([AddedToken(f"[T{i}]", lstrip=bool(i & 1), rstrip=bool(i & 2),
                                         single_word=bool(i & 4), normalized=bool(i & 8),
                                         special=bool(i & 16))])
    tokenizer.add_tokens([AddedToken("foo", single_word=True), AddedToken("foobar")])
    yield "added", tokenizer
    tokenizer = byte_level()
    tokenizer.add_tokens([AddedToken("  ", lstrip=True, rstrip=True)])
    yield "spaces", tokenizer


def main():
    out = pathlib.Path(sys.argv[1])
    for make in (families, steps, flags):
        for name, tokenizer in make():
            folder = out / name
            folder.mkdir(parents=True, exist_ok=True)
            tokenizer.save(str(folder / "tokenizer.json"), pretty=False)


if __name__ == "__main__":
    main()
