#!/usr/bin/env python3
"""Compares the plans of two compilers: did a change of codegen or templates change what they make?

    plans-neutral.py --before=DIR --after=DIR [--echo=DIR | --nvrtc] [--model=MODEL.onnx ...]
                     [--quick]

DIR holds gpt2c and gpt2c-dump. Each compiler makes plans of the sample and of small exports in
fp32, fp16, w8a16, w8a8, w8a8-tensor and with an int8 KV state, for sm_90a alone and for a list of
architectures; of each MODEL, too. Kernels are compared by name and by image, steps by kernel, grid,
block, shared bytes and arguments, weights by content. Differences are listed; the exit code is 1
where there are some.

With --echo (build/nvrtc-echo, the target nvrtc_echo), a kernel's image is the text that NVRTC would
compile, without comments and names of files: seconds for all plans. With --nvrtc kernels are
compiled, some three a second. --quick compares two plans of the sample, and makes sure that
different plans are told apart: a test of this script and of gpt2c's determinism.
"""
import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
EXPORTS = ROOT / "tests/data/gpt2-exports"
FLAGS = {
    "fp32": [],
    "fp32-ffma": ["--fp32-math=ffma"],
    "fp16": ["--precision=fp16"],
    "fp16-batch": ["--precision=fp16", "--max-batch=128"],
    "fp16-plain": ["--precision=fp16", "-O1", "--dependent-launch=false"],
    "w8a16": ["--precision=fp16", "--quantize=w8a16", "--max-batch=128"],
    "w8a16-fp32": ["--quantize=w8a16"],
    "w8a16-groups": ["--precision=fp16", "--quantize=w8a16", "--weight-group=64"],
    "w8a8": ["--precision=fp16", "--quantize=w8a8", "--max-batch=128"],
    "w8a8-tensor": ["--precision=fp16", "--quantize=w8a8-tensor", "--max-batch=64",
                    f"--calibration={ROOT}/examples/sample/README.md"],
    "int8-kv": ["--precision=fp16", "--quantize=w8a16", "--kv-type=int8", "--max-batch=32"],
    "persistent": ["--precision=fp16", "--decode=persistent"],
}
ARCHS = {"hopper": "sm_90a", "portable": "sm_80,sm_90a,compute_80"}


def plan(tools, model, flags, arch, args, folder):
    """The dump of a plan, with the hash of each kernel's images; a refusal is its message."""
    path = pathlib.Path(folder) / "model.plan"
    command = [str(tools / "gpt2c"), str(model), "-o", str(path), "--gpu-arch=" + arch,
               "--verify=off", *flags]
    env = dict(os.environ)
    if args.echo:
        env["GPT2C_CUDA_PATH"] = str(args.echo)
        command.append("--kernel-cache=off")
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    if done.returncode != 0:
        return {"refused": [line for line in done.stderr.splitlines() if "error" in line]}
    dump = subprocess.run([str(tools / "gpt2c-dump"), str(path), "--json"], capture_output=True,
                          text=True, check=True)
    found = json.loads(dump.stdout)
    data = path.read_bytes()
    path.unlink()
    names = [module["name"] for module in found["modules"]]
    images = {}
    for image in found["images"]:
        section = found["sections"][image["section"]]
        content = data[section["offset"]:section["offset"] + section["bytes"]]
        key = names[image["module"]].removesuffix(".cu") + " " + image["arch"]
        images[key] = hashlib.sha256(content).hexdigest()
    weights = [f"{w['dtype']}{w['shape']} {w['hash']}" for w in found["weights"]]
    for function in found["functions"]:
        for step in function["steps"]:
            for arg in step["args"]:
                if arg["kind"] == "Weight":  # by content: the order of weights has no meaning
                    arg["index"] = weights[arg["index"]]
    return {
        "images": images,
        "weights": weights,
        "functions": {
            f"{f['name']} {json.dumps(f['symbols'])} #{i}": f
            for i, f in enumerate(found["functions"])
        },
    }


def differences(before, after):
    """What differs, a line each."""
    if "refused" in before or "refused" in after:
        if before != after:
            yield f"refused: {before.get('refused', 'no')} -> {after.get('refused', 'no')}"
        return
    for what in sorted(before["images"].keys() | after["images"].keys()):
        a, b = before["images"].get(what), after["images"].get(what)
        if a != b:
            yield f"kernel {what}: " + ("gone" if not b else "new" if not a else "another image")
    for weight in sorted(set(before["weights"]) ^ set(after["weights"])):
        yield f"weight {weight}: " + ("gone" if weight in before["weights"] else "new")
    for name in sorted(before["functions"].keys() | after["functions"].keys()):
        a, b = before["functions"].get(name), after["functions"].get(name)
        if not a or not b:
            yield f"@{name}: " + ("gone" if a else "new")
            continue
        if len(a["steps"]) != len(b["steps"]):
            yield f"@{name}: {len(a['steps'])} -> {len(b['steps'])} steps"
        for i, (s, t) in enumerate(zip(a["steps"], b["steps"])):
            for key in sorted(s.keys() | t.keys()):
                if s.get(key) != t.get(key):
                    yield (f"@{name} step {i} ({s['op']}) {key}: "
                           f"{json.dumps(s.get(key))} -> {json.dumps(t.get(key))}")
        for key in a:
            if key != "steps" and a[key] != b.get(key):
                yield f"@{name} {key} differs"


def compare(case, args):
    model, label, flags, arch = case
    with tempfile.TemporaryDirectory() as folder:
        before = plan(args.before, model, flags, arch, args, folder)
        after = plan(args.after, model, flags, arch, args, folder)
    return label, before, list(differences(before, after))


def cases(args):
    sample = ROOT / "examples/sample/model.onnx"
    if args.quick:
        kinds = ("fp16-batch", "w8a8")
        return [(sample, f"sample {kind}", FLAGS[kind], "sm_90a") for kind in kinds]
    exports = sorted(EXPORTS.glob("*/*.onnx"))
    models = [("sample", sample)] + [(p.parent.name, p) for p in exports[::4]]
    models += [(p.stem, p) for p in args.model]
    return [(path, f"{name} {kind} {archs}", flags, ARCHS[archs]) for name, path in models
            for kind, flags in FLAGS.items() for archs in ARCHS
            if name == "sample" or path in args.model or kind in ("fp32", "fp16", "w8a16", "w8a8")]


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--before", type=pathlib.Path, required=True)
    parser.add_argument("--after", type=pathlib.Path, required=True)
    parser.add_argument("--echo", type=pathlib.Path)
    parser.add_argument("--nvrtc", action="store_true")
    parser.add_argument("--model", type=pathlib.Path, action="append", default=[])
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    if bool(args.echo) == args.nvrtc:
        parser.error("one of --echo and --nvrtc")

    failed, seen = False, {}
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for label, before, lines in pool.map(lambda case: compare(case, args), cases(args)):
            seen[label] = before
            refused = " (refused by both)" if "refused" in before else ""
            print(f"{label}: " + (f"{len(lines)} differences" if lines else "the same" + refused))
            for line in lines[:40]:
                print("  " + line)
            failed |= bool(lines)
    if args.quick:
        a, b = seen.values()
        if "refused" in a or "refused" in b or not list(differences(a, b)):
            print("FAIL: plans of other flags are not told apart")
            failed = True
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
