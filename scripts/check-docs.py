#!/usr/bin/env python3
"""Checks that the documents are true where a program can tell: every message in docs/errors.md
occurs in the sources, its exit codes are those of the two enums, every relative link leads
somewhere, every page can be reached from README.md, and lines have at most 100 columns, also in
code. Tables, code blocks and bare URLs of documents may be wider, and so may data of scripts: what
stands in here-documents, and lists of numbers."""
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
    """All string literals of the sources; what separates two of them, expression or line break,
    becomes one mark."""
    text = ""
    for path in files(("frontend", "ir", "passes", "verify", "codegen", "templates", "cpu",
                       "runtime", "server", "tools"), (".cpp", ".h")):
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
    documented = {int(n): name for n, name in re.findall(r"^\| (\d+) \| (\w+) \|",
                                                         read("docs/errors.md"), re.M)}
    for path, enum in (("runtime/Status.h", "Code"), ("ir/Error.h", "ExitCode")):
        body = re.search(r"enum class %s : int \{(.*?)\}" % enum, read(path), re.S).group(1)
        codes = {int(n): name for name, n in re.findall(r"(\w+) = (\d+)", body)}
        if set(codes) != set(documented):
            problems.append(f"docs/errors.md and {path} differ in their exit codes")
        if enum == "Code" and codes != documented:
            problems.append(f"docs/errors.md and {path} differ in the names of exit codes")


def onlyNewlines(match):
    return "\n" * match.group().count("\n")


def withoutCode(text):
    """Code has brackets and lines of its own. Line numbers stay."""
    return re.sub(r"^ *```.*?^ *```", lambda m: "\n" * m.group().count("\n"), text,
                  flags=re.M | re.S)


def documents():
    yield from (n for n in os.listdir(root) if n.endswith(".md"))
    yield from files(("docs", "deploy", "examples", "tests"), (".md",))


def links(document):
    """Targets of relative links, as paths from the root."""
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", withoutCode(read(document))):
        if "://" not in target:
            yield target, os.path.normpath(os.path.join(os.path.dirname(document), target))


def checkLinks():
    for document in documents():
        for target, path in links(document):
            if not os.path.exists(os.path.join(root, path)):
                problems.append(f"{document}: link to '{target}' leads nowhere")


def anchors(document):
    """The anchors of a page's headings, as GitHub makes them."""
    for heading in re.findall(r"^#+ (.*)$", withoutCode(read(document)), re.M):
        yield re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def checkAnchors():
    for document in documents():
        for target, anchor in re.findall(r"\]\(([^)#\s]*)#([^)]+)\)", withoutCode(read(document))):
            folder = os.path.dirname(document)
            page = os.path.normpath(os.path.join(folder, target)) if target else document
            if "://" in target or not page.endswith(".md") or not os.path.exists(os.path.join(root,
                page)):
                continue
            if anchor not in anchors(page):
                problems.append(f"{document}: there is no '{target}#{anchor}'")


def isPage(path):
    return path.endswith(".md") and os.path.exists(os.path.join(root, path))


def checkReachable():
    reached, todo = set(), ["README.md"]
    while todo:
        page = todo.pop()
        if page in reached or not page.endswith(".md") or not os.path.exists(os.path.join(root,
            page)):
            continue
        reached.add(page)
        todo += [path for _, path in links(page)]
    for page in files(("docs",), (".md",)):
        if page not in reached:
            problems.append(f"{page}: no link leads here from README.md")


def checkColumns():
    for document in documents():
        for number, line in enumerate(withoutCode(read(document)).split("\n"), 1):
            text = re.sub(r"https?://\S+", "", line)
            if len(text) > 100 and not line.lstrip().startswith("|"):
                problems.append(f"{document}:{number}: {len(line)} columns, 100 are allowed")
    folders = ("frontend", "ir", "passes", "codegen", "cpu", "runtime", "server", "include",
               "tools", "tests", "scripts", "bench", "examples", "python")
    for path in files(folders, (".cpp", ".h", ".cuh", ".py", ".sh", ".bash")):
        if path in ("scripts/check-layers.sh", "tests/data/make_onnx_ops.py"):
            continue
        text = re.sub(r"<<'?(\w+)'?\n.*?^\1$", onlyNewlines, read(path), flags=re.M | re.S)
        for number, line in enumerate(text.split("\n"), 1):
            if len(line) > 100 and not re.search(r"[\d,]{60}", line):
                problems.append(f"{path}:{number}: {len(line)} columns, 100 are allowed")


checkMessages()
checkCodes()
checkLinks()
checkAnchors()
checkReachable()
checkColumns()
print("\n".join(problems))
sys.exit(1 if problems else 0)
