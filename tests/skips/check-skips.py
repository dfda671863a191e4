#!/usr/bin/env python3
"""check-skips.py BUILD: runs every test that can be skipped in a state in which it is, and reads
its line.

A state lacks something: a GPU, NVRTC, the folder of larger models, packages of Python, programs. In
each, the tests that need it have to end with exit code 77 and one line, "skipped: WHY". And every
place in the sources that skips a test has to be reached by one of them: who adds a place adds the
state here that leads to it. Cases of lit are skipped by lit, which has to find out what is lacking.
"""
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import places
import states

build = pathlib.Path(sys.argv[1]).resolve()
root = pathlib.Path(__file__).resolve().parents[2]
failures = []


def fail(what, output=""):
    failures.append(f"FAIL: {what}" + (f"\n{output.strip()}" if output else ""))


def run(command, env):
    """(exit code, output) of a command in an empty folder."""
    with tempfile.TemporaryDirectory() as empty:
        done = subprocess.run(command, env={**os.environ, **env}, cwd=empty, timeout=300,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors="replace")
    return done.returncode, done.stdout


def check_test(case):
    """One test in one state: its line."""
    state, name, command, env = case
    code, output = run(command, env)
    lines = re.findall(r"^skipped: \S.*$", output, re.M)
    if code != 77 or len(lines) != 1:
        fail(f"{name}, {state}: exit code {code}, {len(lines)} lines that say why", output)
        return ""
    return f"{name}, {state}: {lines[0]}"


def check_part(state, command, env):
    """What goes on without a part: its line."""
    code, output = run(command, env)
    lines = re.findall(r"^(?:\S+: )?skipped: \S.*$", output, re.M)
    if code != 0 or len(lines) != 1:
        fail(f"{state}: exit code {code}, {len(lines)} lines that say why", output)
    print("\n".join(f"{state}: {line}" for line in lines))


def check_units(reached):
    """Tests of GoogleTest without NVRTC and larger models; the places that skipped are added."""
    env = {"GPT2C_SHARED_DIR": states.ABSENT, "GPT2C_CUDA_PATH": states.ABSENT}
    for folder, tests in places.unit_tests(root).items():
        program = build / "bin" / f"unit_{folder}"
        code, output = run([program, "--gtest_filter=" + ":".join(f"*{t}*" for t in tests)], env)
        if code != 0:
            fail(f"{program.name} without NVRTC and larger models", output)
        for file, line, why in re.findall(r"^(\S+):(\d+): Skipped\n(.*)$", output, re.M):
            reached.add((os.path.realpath(file), int(line)))
            if not why.strip():
                fail(f"{file}:{line}: skipped without a word")


def check_lit():
    """Cases that need NVRTC or larger models, without them."""
    needed = re.compile(r"REQUIRES:.*\b(nvrtc|shared)\b")
    wanted = [f.relative_to(root) for f in sorted((root / "tests/lit").rglob("*.*"))
              if f.suffix in (".test", ".ir") and needed.search(f.read_text(errors="replace"))]
    if not wanted or not (build / "lit").exists():
        return
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.json"
        run([build / "lit", "--param=shared=" + states.ABSENT, f"--output={report}",
             *(build / f for f in wanted)], {"GPT2C_CUDA_PATH": states.ABSENT})
        results = json.loads(report.read_text())["tests"] if report.exists() else []
    if len(results) != len(wanted):
        fail(f"lit ran {len(results)} of {len(wanted)} cases that need NVRTC or larger models")
    for result in results:
        if result["code"] != "UNSUPPORTED" or "unavailable features" not in result["output"]:
            fail(f"{result['name']} without NVRTC and larger models: {result['code']}",
                 result["output"])


def check_package():
    """The Python package's test where the package cannot be built; the reasons that were given."""
    given = set()
    for options in states.CONFIGURATIONS:
        with tempfile.TemporaryDirectory() as folder:
            package = root / "tests/skips/package"
            code, output = run(["cmake", "-S", package, "-B", folder, *options], {})
            if code == 0:
                code, output = run(["ctest", "--test-dir", folder, "-V"], {})
            lines = re.findall(r"^1: skipped: (\S.*)$", output, re.M)
            if code != 0 or "(Skipped)" not in output or len(lines) != 1:
                fail(f"python.package with {' '.join(options)}", output)
            given.update(lines)
    return given


def main():
    tests = states.tests(build)
    with tempfile.TemporaryDirectory() as work:
        log = pathlib.Path(work) / "skips"
        log.touch()
        cases = list(states.cases(tests, root, pathlib.Path(work), log))
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            lines = list(pool.map(check_test, cases))
        reached = {(file, int(line)) for file, _, line in
                   (entry.rpartition(":") for entry in log.read_text().split("\n") if entry)}
        print("\n".join(filter(None, lines)))
        for part in states.parts(tests, root, pathlib.Path(work)):
            check_part(*part)
    check_units(reached)
    check_lit()
    given = check_package()
    for file, line, _ in places.by_themselves(root):
        fail(f"{os.path.relpath(file, root)}:{line}: use skip, which makes a line of one kind")
    for file, line, text in places.all_places(root):
        excused = file.endswith("python/tests/run.py") and not states.has_package(tests)
        code = pathlib.Path(file).read_text().splitlines()[line - 1]
        excused |= any(said in code for said in states.OTHER_BUILDS)
        if (file, line) not in reached and text not in given and not excused:
            place = f"{os.path.relpath(file, root)}:{line}"
            fail(f"{place}: no state leads here; see tests/skips/states.py")
    print("\n".join(failures))
    print(f"{len(cases)} tests in states of their own, {len(reached)} places, "
          f"{len(failures)} failures")
    return 1 if failures else 0


sys.exit(main())
