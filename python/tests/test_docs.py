"""docs/python.md runs, and prints what it shows; types of package and tests are checked."""
import contextlib
import io
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import gpt2c
from conftest import ROOT, SAMPLE

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)


def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its blocks of Python run one after the other in one folder; a block `text` right behind one
    is what that prints."""
    page = (ROOT / "docs" / "python.md").read_text()
    shutil.copytree(SAMPLE, tmp_path / "examples" / "sample")
    monkeypatch.chdir(tmp_path)
    scope: dict[str, object] = {"__name__": "page"}
    blocks = list(BLOCK.finditer(page))
    ran = 0
    for block, after in zip(blocks, blocks[1:] + [None]):
        if block[1] != "python":
            continue
        line = page.count("\n", 0, block.start()) + 2
        printed = io.StringIO()
        code = compile("\n" * (line - 1) + block[2], "docs/python.md", "exec")
        with contextlib.redirect_stdout(printed):
            exec(code, scope)
        ran += 1
        if after and after[1] == "text" and not page[block.end():after.start()].strip():
            assert printed.getvalue().rstrip("\n") == after[2].rstrip("\n"), f"line {line}"
        else:
            assert not printed.getvalue(), f"line {line}: prints what the page does not show"
    assert ran >= 6


def test_types(tmp_path: Path) -> None:
    """Of an installed package mypy reads the types; only in a build tree it checks them, too."""
    package = os.path.dirname(gpt2c.__file__)
    assert os.path.exists(os.path.join(package, "py.typed"))
    folder = os.path.dirname(package)
    environment = dict(os.environ)
    cache = str(tmp_path)
    here = os.path.dirname(os.path.abspath(__file__))
    paths = [os.path.join(here, "..", "..", "tests")]  # of skip.py
    if os.path.basename(folder) != "site-packages":
        paths.append(folder)
        cache = os.path.join(folder, ".mypy_cache")
    environment["MYPYPATH"] = os.pathsep.join(paths)
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", cache, here]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stdout
