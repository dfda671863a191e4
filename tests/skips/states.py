"""States of a machine that lacks something, and the tests that are skipped there."""
import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ABSENT = "/absent"
# Options of a configuration without the Python package, without Python's headers, without nanobind.
WITHOUT_PYTHON = ["-DGPT2C_PYTHON=ON", "-DCMAKE_DISABLE_FIND_PACKAGE_Python=ON",
                  "-DCMAKE_DISABLE_FIND_PACKAGE_nanobind=ON"]
CONFIGURATIONS = (["-DGPT2C_PYTHON=OFF"], WITHOUT_PYTHON,
                  [*WITHOUT_PYTHON, "-DPython_Development.Module_FOUND=ON"])
# Of places that only another build, or another processor, leads to: what they say.
OTHER_BUILDS = ("this build has no XGrammar", "the processor has no tiles (AMX)")
# Programs in the place of others, by the state they make: which tests, and what the programs do.
PROGRAMS = {
    "sanitized libraries": (["e2e.docs", "e2e.run-capi", "python.wheel"],
                            {"nm": "echo __asan_init"}),
    "no man pages": (["e2e.man"], {"gpt2c": "exit 1"}),
    "no engine for the plan": (["e2e.engine.sample"],
                               {"gpt2c": "exit 0", "e2e_engine": "echo no engine >&2; exit 4"}),
    "no grammars": (["e2e.grammars"],
                    {"gpt2c": "exit 0", "e2e_grammars": "echo no grammars >&2; exit 4"}),
    "no registry of packages": (["e2e.smollm2"], {"python3": "exit 1"}),
    "a GPU without clusters": (["e2e.run-clusters-gpu", "e2e.run-shares-gpu"],
                               {name: "exit 0" for name in ("gpt2c", "gpt2c-run", "gpt2c-dump",
                                                            "python3")}),
}


class Test:
    """A test as ctest knows it."""

    def __init__(self, entry):
        properties = {p["name"]: p["value"] for p in entry.get("properties", [])}
        self.name = entry["name"]
        self.command = entry.get("command", [])
        self.labels = properties.get("LABELS", [])
        self.skippable = "SKIP_RETURN_CODE" in properties
        self.env = dict(e.split("=", 1) for e in properties.get("ENVIRONMENT", []))
        for change in properties.get("ENVIRONMENT_MODIFICATION", []):
            name, how = change.split("=", 1)
            how, value = how.split(":", 1)
            parts = [value, self.env.get(name, os.environ.get(name, ""))]
            if how == "path_list_append":
                parts.reverse()
            self.env[name] = os.pathsep.join(filter(None, parts))

    def script(self):
        """The text of the script that it runs; nothing for a program."""
        return "".join(pathlib.Path(a).read_text() for a in self.command
                       if a.endswith((".sh", ".py")) and os.path.isfile(a))

    def lacking(self, state, **env):
        """The case of this test in a state."""
        return state, self.name, self.command, {**self.env, **env}


def tests(build):
    """Those that can be skipped, by name."""
    listed = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1"], check=True,
                            stdout=subprocess.PIPE, text=True).stdout
    every = [Test(entry) for entry in json.loads(listed)["tests"]]
    return {t.name: t for t in every if t.skippable}


def has_package(known):
    """Whether the build has the Python package."""
    return "run.py" in known["python.package"].command[-1]


def lacking_something(known):
    """GPU, NVRTC and larger models."""
    shared = os.environ["GPT2C_SHARED_DIR"]
    seen = set()
    for test in known.values():
        if "gpu" in test.labels:
            program = tuple(test.command[:2])
            if program in seen and not os.path.exists("/dev/nvidiactl"):
                continue  # all of them are skipped, and count-tests.py reads their lines
            seen.add(program)
            yield test.lacking("no GPU", CUDA_VISIBLE_DEVICES="")
        elif any(shared in argument for argument in test.command):
            state, name, command, env = test.lacking("no larger models")
            yield state, name, [a.replace(shared, ABSENT) for a in command], env
        if "emulated" in test.labels or "useFrontEnd" in test.script():
            yield test.lacking("no NVRTC", GPT2C_CUDA_PATH=ABSENT)
    yield known["suite.op_kernels"].lacking("no NVRTC", GPT2C_CUDA_PATH=ABSENT)
    for name in ("e2e.compile-models", "e2e.run-outliers-rms"):
        yield known[name].lacking("no larger models", GPT2C_SHARED_DIR=ABSENT)


def lacking_packages(known):
    """Packages of Python, one at a time."""
    def without(test, *packages):
        path = os.pathsep.join(filter(None, (HERE, test.env.get("PYTHONPATH"))))
        for package in packages:
            yield test.lacking(f"no {package} for Python", GPT2C_WITHOUT=package, PYTHONPATH=path)

    for test in known.values():
        if test.name.startswith(("meaning.", "sizes.")):
            yield from without(test, "numpy", "onnx", "onnxruntime")
        elif "\nneedOnnx" in test.script() and "gpu" not in test.labels:
            yield from without(test, "numpy", "onnx")
    yield from without(known["tokenizers.toys"], "tokenizers")
    yield from without(known["chat.templates"], "jinja2")
    if has_package(known):
        yield from without(known["python.package"], "numpy", "pytest", "mypy")
        yield from without(known["python.wheel"], "numpy", "scikit_build_core")


def few_programs(work):
    """PATH of what scripts of tests begin with, and of nothing else."""
    made = work / "few"
    made.mkdir(exist_ok=True)
    for program in ("basename", "bash", "dirname", "realpath"):
        (made / program).unlink(missing_ok=True)
        (made / program).symlink_to(shutil.which(program))
    return str(made)


def lacking_programs(known, root, work):
    """Programs, and what programs say of this machine."""
    def folder(name, programs):
        made = work / name
        made.mkdir()
        for program, does in programs.items():
            (made / program).write_text(f"#!/bin/sh\n{does}\n")
            (made / program).chmod(0o755)
        return made

    few = few_programs(work)
    for name in ("e2e.dot", "e2e.run-capi", "e2e.run-capi-gpu", "e2e.serve",
                 "e2e.serving-metrics"):
        yield known[name].lacking("few programs", PATH=few)
    for state, (names, programs) in PROGRAMS.items():
        first = folder(state, programs)
        for name in names:
            if name not in known and name == "python.wheel":
                continue  # the build has no Python package
            path = f"{first}{os.pathsep}{known[name].env['PATH']}"
            yield known[name].lacking(state, PATH=path)
    threads = ["bash", root / "tests/threads/run.sh"]
    unmapped = folder("threads", {"program": "echo unexpected memory mapping"}) / "program"
    yield "no ThreadSanitizer", "threads.sanitized", threads, {}
    threads_twice = [*threads, unmapped, unmapped]
    yield "a kernel ThreadSanitizer cannot use", "threads.sanitized", threads_twice, {}


def parts(known, root, work):
    """(state, command, environment) of what leaves a part out, says so and goes on."""
    bash = shutil.which("bash")
    yield "no clang", [bash, root / "scripts/fuzz.sh"], {"PATH": few_programs(work)}
    for page in ("debugging.md", "from-checkpoint-to-plan.md"):
        yield (f"{page}, no onnx for Python", [root / "scripts/run-docs.py", root / "docs" / page],
               {"GPT2C_WITHOUT": "onnx", "PYTHONPATH": HERE})
    sys.path.append(str(root / ".deps/python"))
    if importlib.util.find_spec("onnx"):
        env = known["e2e.bench-decoder"].env
        yield ("no torch for Python",
               ["python3", root / "bench/bench-decoder.py", "--size=tiny", "--prompt=4",
                "--tokens=2", "--device=cpu", "--skip=ours,o0"],
               {**env, "GPT2C_WITHOUT": "torch", "PYTHONPATH": f"{HERE}:{root}/.deps/python"})


def cases(known, root, work, log):
    """(state, test, command, environment) of each test in each state that skips it. Where from it
    was skipped is added to the file `log`."""
    for maker in (lacking_something(known), lacking_packages(known),
                  lacking_programs(known, root, work)):
        for state, name, command, env in maker:
            yield state, name, command, {**env, "GPT2C_SKIP_LOG": str(log)}
