#!/usr/bin/env python3
"""Checks that the documents are true where a program can tell: every message in docs/errors.md occurs in the sources, its
exit codes are those of the two enums, and every relative link leads somewhere."""
import os
import re
import sys

root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
problems = []


def read(path):
    with open(os.path.join(root, path), encoding="utf-8") as file:
        return file.read()


def files(folders, endings):
    for folder in folders:
        for at, _, names in os.walk(os.path.join(root, folder)):
            for name in sorted(names):
                if name.endswith(endings):
                    yield os.path.relpath(os.path.join(at, name), root)


def literals():
    """All string literals of the sources; what separates two of them, expression or line break, becomes one mark."""
    text = ""
    for path in files(("frontend", "ir", "passes", "codegen", "cpu", "runtime", "tools"), (".cpp", ".h")):
        source = re.sub(r"//[^\n]*", "", read(path))
        source = re.sub(r'"\s*\n\s*"', "", source)
        text += "\0".join(re.findall(r'"((?:[^"\\\n]|\\.)*)"', source)) + "\0"
    return text.replace('\\"', '"')


def checkMessages():
    known = literals()
    rows = re.findall(r"^\| (\d+) \| `([^`]+)` \|", read("docs/errors.md"), re.M)
    if not rows:
        problems.append("docs/errors.md: no messages found")
    for _, message in rows:
        for piece in message.split("…"):
            piece = piece.strip(" :;'().")
            if piece not in known:
                problems.append(f"docs/errors.md: no source says '{piece}' (of '{message}')")


def checkCodes():
    documented = {int(n): name for n, name in re.findall(r"^\| (\d+) \| (\w+) \|", read("docs/errors.md"), re.M)}
    for path, enum in (("runtime/Status.h", "Code"), ("ir/Error.h", "ExitCode")):
        body = re.search(r"enum class %s : int \{(.*?)\}" % enum, read(path), re.S).group(1)
        codes = {int(n): name for name, n in re.findall(r"(\w+) = (\d+)", body)}
        if set(codes) != set(documented):
            problems.append(f"docs/errors.md and {path} differ in their exit codes")
        if enum == "Code" and codes != documented:
            problems.append(f"docs/errors.md and {path} differ in the names of exit codes")


def checkLinks():
    documents = [n for n in os.listdir(root) if n.endswith(".md")] + list(files(("docs", "examples"), (".md",)))
    for document in documents:
        text = re.sub(r"^ *```.*?^ *```", "", read(document), flags=re.M | re.S)  # code has brackets of its own
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
            if "://" not in target and not os.path.exists(os.path.join(root, os.path.dirname(document), target)):
                problems.append(f"{document}: link to '{target}' leads nowhere")


checkMessages()
checkCodes()
checkLinks()
print("\n".join(problems))
sys.exit(1 if problems else 0)
