#!/usr/bin/env python3
"""run-docs.py [PAGE.md ...]: runs the commands of documents.

Every block marked `sh` of a page runs in bash, one after the other, in one empty folder that has
the repository's `examples` and, as `build`, the build folder that the tools are in. A block marked
`text` right behind it is what it prints, standard output and errors together: an ellipsis stands
for anything within a line, a line of an ellipsis alone for any lines. Default: every page of docs/
that has such a block. The tools are found as the shell finds them, Python's packages in
.deps/python, too; a page whose packages are missing is skipped and says so."""
import glob
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile

root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
packages = os.path.join(root, ".deps", "python")
sys.path.append(packages)
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)


def commands(text):
    """(line, commands, expected output or None) of each block marked `sh`."""
    blocks = list(BLOCK.finditer(text))
    for block, after in zip(blocks, blocks[1:] + [None]):
        if block[1] != "sh":
            continue
        shown = None
        if after and after[1] == "text" and not text[block.end():after.start()].strip():
            shown = after[2]
        yield text.count("\n", 0, block.start()) + 1, block[2], shown


def pattern(shown):
    lines = []
    for line in shown.splitlines():
        if line.strip() == "…":
            lines.append(r"(?:.*\n)*?")
        else:
            lines.append(r"[^\n]*?".join(map(re.escape, line.split("…"))) + r" *\n")
    return re.compile("".join(lines))


NEEDS = {"from-checkpoint-to-plan.md": "onnx", "debugging.md": "onnx"}


def run(page):
    """Whether the page's blocks do what the page says."""
    needed = NEEDS.get(os.path.basename(page))
    if needed and importlib.util.find_spec(needed) is None:
        print(f"{os.path.relpath(page, root)}: skipped: Python has no {needed}; "
              "scripts/setup.sh --tests installs it")
        return True
    path = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), packages)))
    with open(page, encoding="utf-8") as file:
        blocks = list(commands(file.read()))
    with tempfile.TemporaryDirectory() as folder:
        os.symlink(os.path.join(root, "examples"), os.path.join(folder, "examples"))
        tool = shutil.which("gpt2c")
        if tool:
            os.symlink(os.path.dirname(os.path.dirname(tool)), os.path.join(folder, "build"))
        for line, block, shown in blocks:
            done = subprocess.run(["bash", "-euo", "pipefail", "-c", block], cwd=folder, text=True,
                                  env={**os.environ, "PYTHONPATH": path},
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT)
            output = done.stdout if done.stdout.endswith("\n") else done.stdout + "\n"
            if done.returncode:
                print(f"{page}:{line}: exit code {done.returncode}\n{block}{output}")
                return False
            if shown is not None and not pattern(shown).fullmatch(output):
                print(f"{page}:{line}: other output than the page shows\n{block}{output}")
                return False
    print(f"{os.path.relpath(page, root)}: {len(blocks)} blocks")
    return bool(blocks)


def every_page():
    """Those with something to run. The notebook below lab/ tells what was done once."""
    for page in sorted(glob.glob(os.path.join(root, "docs", "**", "*.md"), recursive=True)):
        with open(page, encoding="utf-8") as file:
            if os.path.basename(os.path.dirname(page)) != "lab" and any(commands(file.read())):
                yield page


results = [run(page) for page in sys.argv[1:] or every_page()]
sys.exit(not results or not all(results))
