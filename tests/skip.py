"""For tests in Python: what tests/skip.bash is for scripts."""
import os
import sys
from typing import NoReturn


def skip(why: str) -> NoReturn:
    """Ends the program as skipped: exit code 77, and a line that says why."""
    log = os.environ.get("GPT2C_SKIP_LOG")  # tests/skips asks from where
    if log:
        caller = sys._getframe(1)
        with open(log, "a", encoding="utf-8") as file:
            print(f"{os.path.realpath(caller.f_code.co_filename)}:{caller.f_lineno}", file=file)
    print("skipped: " + why.splitlines()[0], flush=True)
    sys.exit(77)
