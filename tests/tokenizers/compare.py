#!/usr/bin/env python3
"""Compares tokenizers with the `tokenizers` package of PyPI: the same tokens for random texts, with
and without those around a text, and the same texts of the tokens.
    compare.py ENCODE COUNT TOKENIZER...
ENCODE: the program of encode.cpp; COUNT: random texts of each; TOKENIZER: a tokenizer.json."""
import random
import re
import struct
import subprocess
import sys
import time

from tokenizers import Tokenizer

PIECES = [
    "Hello", " world", "the", " The", "'s", "'LL", "I'm", "don't", " ", "  ", "    ", "\t", "\n",
    "\r\n", "\n\n\n", " \n ", "\u00a0", "\u3000", "\u2028", "\u200d", "\ufeff", "1", "23", "4567",
    "3.14", "½", "²", "①", "٣", "x_1", "foo()", "{}", "...", "!?", "—", "“", "”", "$", "€", "é",
    "e\u0301", "\u0301", "Å", "A\u030a", "ﬁ", "ß", "İ", "ſ", "Ω", "Ω", "日本", "語", "カ", "が",
    "か\u3099", "한국", "\u1112\u1161\u11ab", "ไทย", "हिन्दी", "العربية", "עברית", "😀", "👩\u200d👧",
    "🇩🇪", "☃\ufe0f", "▁", "▁▁", "▁the", "<0x41>", "<0xE2>", "<unk>", "<s>", "</s>", "<pad>", "<|",
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|begin_of_text|>", "[INST]", "Ġ", "Ċ", "ƒ",
    "\x00", "\x01", "\x7f", "\x85", "\u0530", "\ue000", "\U0001d400", "\U00020000", "K", "a" * 30,
]


MARKS = [chr(c) for c in range(0x300, 0x370)] + ["\u0e31", "\u093f", "\u094d", "\u200d", "\ufe0f",
                                                 "\u20e3", "\u202e", "\u2066"]
EMOJI = ["👩", "👨", "👧", "❤", "🏳", "🌈", "🏽", "🇩", "🇪", "☠", "💻", "1", "#"]
BLANKS = ["\r", "\n", "\t", " ", "\x0b", "\x0c", "\r\n", "\u00a0", "\u2003", "\u3000", "\u200b",
          "\u2029", "\x1c", "\x85"]
RANGES = [(160, 0x250), (0x300, 0x370), (0x370, 0x530), (0x590, 0x700), (0x900, 0x980),
          (0x2000, 0x2070), (0x3040, 0x3100), (0x4E00, 0x9FA0), (0xAC00, 0xD7A0), (0xE000, 0xE010),
          (0xFF00, 0xFFF0), (0x1D400, 0x1D500), (0x1F300, 0x1F600), (0xF0000, 0xF0010)]


def mangled(rng, token):
    """What is nearly an added token."""
    kind, at = rng.randrange(5), rng.randrange(len(token) + 1)
    if kind == 0:
        return token[:at]
    if kind == 1:
        return token[at:]
    if kind == 2:
        return token[:at] + rng.choice(BLANKS + MARKS) + token[at:]
    return token.upper() if kind == 3 else token[:at] + token


def piece(rng, added):
    kind = rng.random()
    if kind < 0.40:
        return rng.choice(PIECES)
    if kind < 0.48 and added:
        token = rng.choice(added)
        return rng.choice(["", " ", "  ", "a"]) + (mangled(rng, token) if rng.random() < 0.4
                                                   else token)
    if kind < 0.70:
        letters = "etaoin shrdlu,.ETA\n'0123"
        return "".join(rng.choice(letters) for _ in range(rng.randrange(1, 12)))
    if kind < 0.82:
        return "".join(chr(rng.randrange(*rng.choice(RANGES))) for _ in range(rng.randrange(1, 5)))
    if kind < 0.87:
        return rng.choice("aeé가का") + "".join(rng.choices(MARKS, k=rng.randrange(1, 9)))
    if kind < 0.91:
        return rng.choice(["\u200d", "", "\ufe0f\u200d"]).join(
            rng.choices(EMOJI, k=rng.randrange(1, 7)))
    if kind < 0.96:
        return "".join(rng.choices(BLANKS, k=rng.randrange(1, 9)))
    if kind < 0.98:  # anything but surrogates
        return "".join(chr(c if c < 0xD800 else c + 0x800)
                       for c in rng.choices(range(0x110000 - 0x800), k=rng.randrange(1, 4)))
    return rng.choice(["a", " ", "\n", "0", "-", "=", "語", "\u0301", "😀", "\x00", "ab", "e\u0301",
                       "▁", " \n"]) * rng.choice([7, 64, 255, 700])


def texts(count, added):
    rng = random.Random(count)
    yield ""
    for _ in range(count):
        yield "".join(piece(rng, added) for _ in range(rng.choice([1, 2, 3, 5, 8, 13, 21])))


class Ours:
    def __init__(self, program, path, *flags):
        self.process = subprocess.Popen([program, path, *flags], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def ask(self, what, data):
        self.process.stdin.write(what + struct.pack("<I", len(data)) + data)
        self.process.stdin.flush()
        size = self.process.stdout.read(4)
        if len(size) < 4:
            sys.exit("the program ended: " + self.process.stderr.read().decode())
        return self.process.stdout.read(struct.unpack("<I", size)[0])

    def encode(self, what, text):
        data = self.ask(what, text.encode())
        return list(struct.unpack(f"<{len(data) // 4}i", data))

    def decode(self, ids):
        return self.ask(b"d", struct.pack(f"<{len(ids)}i", *ids))

    def end(self):
        self.process.stdin.close()
        return float(self.process.stderr.read().split()[-1])


def same_text(ours, theirs):
    """Whether the bytes `ours` are `theirs`, where n characters U+FFFD stand for n to 3 n bytes of
    which some form no character: the package shows what stands beside those in the same run of
    byte tokens as U+FFFD, too."""
    pattern = b"".join(
        b".{%d,%d}" % (len(part), 3 * len(part)) if part.startswith("\ufffd")
        else re.escape(part.encode()) for part in re.split("(\ufffd+)", theirs))
    return re.fullmatch(pattern, ours, re.DOTALL) is not None


def unless_panic(call):
    """None where the package panics: it gives up on regular expressions, and strips what is not
    there."""
    try:
        return call()
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        return None


def compare(program, path, count):
    theirs = Tokenizer.from_file(path)
    theirs.no_truncation()
    theirs.no_padding()
    added = [t.content for t in theirs.get_added_tokens_decoder().values()][:300]
    ours = Ours(program, path, "--blob")
    rng = random.Random(3)
    vocabulary = theirs.get_vocab_size()
    bad = done = 0
    spent = 0.0
    for text in texts(count, added):
        begin = time.perf_counter()
        want = unless_panic(lambda: theirs.encode(text, add_special_tokens=False).ids)
        spent += time.perf_counter() - begin
        if want is None:
            continue
        got = ours.encode(b"n", text)
        wrong = [(got, want, "tokens")] if got != want else []
        if done % 4 == 0:
            got, around = ours.encode(b"e", text), theirs.encode(text).ids
            if got != around:
                wrong.append((got, around, "tokens around"))
        for ids, what in ((want, "text"), (rng.choices(range(vocabulary), k=5), "random text")):
            shown = unless_panic(lambda: theirs.decode(ids, skip_special_tokens=False))
            if shown is None:
                continue
            if what == "random text" and ("\ufffd" in shown or done % 4):
                continue
            mine = ours.decode(ids)
            if not same_text(mine, shown):
                wrong.append((mine.decode(errors="replace"), shown, what))
        done += 1
        for mine, other, what in wrong:
            bad += 1
            if bad < 6:
                print(f"{path}: {what} of {text!r}:\n  ours   {mine!r}\n  theirs {other!r}")
                if what == "tokens":
                    tokens = [[theirs.id_to_token(i) for i in l] for l in (mine, other)]
                    print("  ", *tokens)
    print(f"{path}: {done} texts, {bad} differences, encode {ours.end():.2f} s "
          f"(the package {spent:.2f} s)", flush=True)
    return bad


def main():
    program, count, *paths = sys.argv[1:]
    sys.exit(1 if sum(compare(program, path, int(count)) for path in paths) else 0)


if __name__ == "__main__":
    main()
