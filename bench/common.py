"""What the scripts of this folder share."""
import importlib.util
import pathlib
import subprocess
import sys
import time


def progress(text):
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def run(command, check=True):
    """The command, whose output is kept; ends the script where it failed and `check` holds."""
    words = list(map(str, command))
    progress(" ".join(words))
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          check=False)
    if done.returncode and check:
        sys.exit(f"exit code {done.returncode}: {' '.join(words)}\n{done.stderr[-3000:]}")
    return done


def sibling(name):
    """A script beside this one, as a module."""
    path = pathlib.Path(__file__).with_name(name)
    spec = importlib.util.spec_from_file_location(name.partition(".")[0].replace("-", "_"), path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
