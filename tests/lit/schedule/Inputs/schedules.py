#!/usr/bin/env python3
"""schedules.py FOLDER...: of each model below a folder what its longest prompt and a step of one
sequence are scheduled as, and what decoder it is."""
import pathlib
import subprocess
import sys


def blocks(model):
    """What gpt2c-opt prints of a model: a list of lines for each function's version."""
    made = subprocess.run(
        ["gpt2c-opt", str(model), "--compile-to=scheduled", "--precision=f16", "--max-batch=1",
         "--quiet"], capture_output=True, text=True)
    found = []
    for line in (made.stdout + made.stderr).splitlines():
        if line.startswith("warning:"):  # of the export
            continue
        if line.startswith("@") or not found:
            found.append([])
        found[-1].append(line)
    return found


def shown(found):
    """The last version of each function, and what is said of decode steps."""
    last = {}
    for block in found:
        name = block[0].split()[0]
        if name != "@extend" and "in pages" not in block[0]:
            last[block[0] if name in ("@decode:", "@generate") else name] = block
    return last.values()


for folder in sys.argv[1:]:
    for model in sorted(pathlib.Path(folder).glob("**/model.onnx")):
        print("==", model.parent.name)
        for block in shown(blocks(model)):
            print("\n".join(block))
