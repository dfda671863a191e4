"""The tools in the package: where they are, how they are run, and the console's entry points."""
from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib import util
from pathlib import Path
from typing import NoReturn, Optional, Sequence

from ._errors import Error, IoError, error_of


def tool_path(name: str) -> str:
    """The binary of a tool."""
    path = Path(__file__).parent / "bin" / name
    if not path.is_file():
        raise IoError(f"there is no tool '{name}' in {path.parent}: install the package again")
    return str(path)


def cuda_folder() -> Optional[str]:
    """The folder of NVIDIA's wheels that has NVRTC and the headers of kernels, where installed."""
    try:
        spec = util.find_spec("nvidia")
    except (ImportError, ValueError):
        return None
    for root in spec.submodule_search_locations or () if spec else ():
        for folder in sorted(Path(root).glob("cu*"), reverse=True):
            has_library = any(folder.glob("lib*/libnvrtc.so*"))
            if has_library and (folder / "include" / "cuda_fp16.h").is_file():
                return str(folder)
    return None


def tool_environment() -> dict[str, str]:
    """This process's, with NVIDIA's wheels where no CUDA toolkit is named."""
    environment = dict(os.environ)
    folder = cuda_folder()
    if folder and not environment.get("GPT2C_CUDA_PATH"):
        environment["GPT2C_CUDA_PATH"] = folder
    return environment


def main() -> NoReturn:
    """Becomes the tool that has the name of the console's command."""
    name = os.path.basename(sys.argv[0])
    try:
        path = tool_path(name)
    except IoError as error:
        sys.exit(f"error: {error}")
    os.execve(path, [path, *sys.argv[1:]], tool_environment())


def run_tool(name: str, arguments: Sequence[str], verbose: bool = False) -> tuple[str, str]:
    """Output and messages of a tool; the error of its exit code where that is not 0. With `verbose`
    messages go to stderr as they come, too."""
    command = [tool_path(name), *arguments]
    messages = []
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, env=tool_environment(), encoding="utf-8",
                          errors="replace") as process:
        try:
            if verbose and process.stderr:
                for line in process.stderr:
                    messages.append(line)
                    sys.stderr.write(line)
            output, rest = process.communicate()
        except BaseException:  # KeyboardInterrupt too: no tool outlives its caller
            process.kill()
            raise
    text = "".join(messages) + (rest or "")
    if process.returncode < 0:
        raise Error(f"{name} ended by signal {-process.returncode}\n{text}".strip())
    if process.returncode:
        raise error_of(process.returncode, error_text(text) or f"{name} failed")
    return output, text


def error_text(messages: str) -> str:
    """The paragraphs that begin with `error:`, without that word."""
    paragraphs = re.split(r"^(?=error: |note: |warning: |remark: |missed: )", messages, flags=re.M)
    errors = [p[len("error: "):].strip() for p in paragraphs if p.startswith("error: ")]
    return "\n".join(errors) or messages.strip()
