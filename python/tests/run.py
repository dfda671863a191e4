#!/usr/bin/env python3
"""Runs the tests of the package that Python finds. Exit code 77, and a line that says why, where
what they need is not installed."""
import importlib.util
import os
import sys

missing = [m for m in ("numpy", "pytest", "mypy") if importlib.util.find_spec(m) is None]
if missing:
    print(f"skipped: Python has no {', '.join(missing)}; scripts/setup.sh --dev installs them")
    sys.exit(77)

import pytest  # noqa: E402

sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", os.path.dirname(os.path.abspath(__file__)),
                      *sys.argv[1:]]))
