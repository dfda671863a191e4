#!/usr/bin/env python3
"""Changes graphs and asks that gpt2c is never wrong in silence: each is equal to ONNX Runtime, or
refused.

    fuzz_meaning.py --seed=S --count=N --out=DIR [--keep-failures]
                    [--first=K] [--jobs=N] [--modes=MODE,..] [--log=FILE]

Case I of seed S is the same wherever it runs. It is drawn from the exports in tests/data, those of
$GPT2C_SHARED_DIR and graphs built here, and changed in one to three places. A case that fails is
reduced to the fewest changes that still fail. With --keep-failures its folder stays in DIR: the
model, ONNX Runtime's outputs, case.json with the commands. The tools are taken from PATH. Exit code
8 where a case is wrong or a tool crashed, 77 without ONNX Runtime.
"""

import argparse
import collections
import json
import multiprocessing
import os
import pathlib
import shutil
import sys
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from skip import skip  # noqa: E402

try:
    import cases
    from harness import prepared, run
    from oracle import Invalid
except ModuleNotFoundError as e:
    skip(f"{e.name} for Python is missing (scripts/setup.sh --tests)")

# How each case is compiled; a mode that gpt2c does not have is left out. The check changes no plan:
# the recognisers are on their own only where it did not let a plan through.
MODES = {"verified": (), "recognisers": ("--verify=off",)}


def modes(wanted):
    known = run(["gpt2c", "--help"], ".")[1]
    if "--verify=" not in known:
        return {"recognisers": ()}
    return {name: MODES[name] for name in wanted}


def reduced(case, folder, flags, state):
    """The fewest changes of `case` with which the outcome is as bad."""
    for i in range(len(case.changes)):
        fewer = case.without(i)
        try:
            if prepared(fewer.model(), folder).check(flags).state == state:
                return reduced(fewer, folder, flags, state)
        except Invalid:
            pass
    return case


def keep_reduced(case, folder, flags, state, keep):
    """What is left of a case that fails; with `keep` also as a folder beside it."""
    small = reduced(case, folder / "reduced", flags, state)
    if keep:
        kept = prepared(small.model(), folder / "reduced")
        why = kept.check(flags).why
        about = {"said": small.said(), "why": why, "commands": kept.commands(flags)}
        (folder / "reduced" / "case.json").write_text(json.dumps(about, indent=1))
    return small.said()


def one(task):
    """{mode: (state, why)} of one case, and what was changed; states of harness, or invalid."""
    seed, index, out, keep, wanted = task
    start, folder = time.time(), pathlib.Path(out) / f"{seed}-{index}"
    case = cases.draw(seed, index)
    result = {"seed": seed, "index": index, "said": case.said(), "modes": {}}
    try:
        prepared_case = prepared(case.model(), folder)
    except Invalid as e:
        result["modes"] = {mode: ("invalid", str(e)[:200]) for mode in wanted}
        wanted = {}
    for mode, flags in wanted.items():
        if result["modes"].get("verified", ("",))[0] == "equal":
            result["modes"][mode] = result["modes"]["verified"]
            continue
        outcome = prepared_case.check(flags)
        result["modes"][mode] = tuple(outcome)
        if outcome.state in ("wrong", "crash"):
            result["reduced"] = keep_reduced(case, folder, flags, outcome.state, keep)
    bad = any(state in ("wrong", "crash") for state, _ in result["modes"].values())
    if not (bad and keep):
        shutil.rmtree(folder, ignore_errors=True)
    result["seconds"] = time.time() - start
    return result


def is_false_alarm(modes):
    """Whether the check refused a plan that is equal to ONNX Runtime."""
    state, why = modes.get("verified", ("", ""))
    alone = modes.get("recognisers", ("", ""))[0]
    return state == "refused" and "gpt2c: 8:" in why and alone == "equal"


def report(results, took):
    """Counts of each mode. True where nothing is wrong."""
    good = True
    by_mode = collections.defaultdict(collections.Counter)
    for r in results:
        for mode, (state, why) in r["modes"].items():
            by_mode[mode][state] += 1
            if state == "refused" and "gpt2c: 8:" in why:
                by_mode[mode]["of them by verification"] += 1
        by_mode["verified"]["false alarms"] += is_false_alarm(r["modes"])
    for mode, counts in by_mode.items():
        good = good and not counts["wrong"] and not counts["crash"]
        print(
            f"{mode}: "
            + ", ".join(
                f"{counts[k]} {k}"
                for k in (
                    "equal",
                    "refused",
                    "of them by verification",
                    "false alarms",
                    "wrong",
                    "crash",
                    "invalid",
                )
            )
        )
    print(f"{len(results)} cases in {took:.0f} s")
    return good and any(counts["equal"] for counts in by_mode.values())


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--out", default="fuzz-meaning")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--keep-failures", action="store_true")
    parser.add_argument("--log", help="a line of JSON for each case")
    args = parser.parse_args()
    wanted = modes(args.modes.split(","))
    pathlib.Path(args.out).mkdir(parents=True, exist_ok=True)
    tasks = [
        (args.seed, i, args.out, args.keep_failures, wanted)
        for i in range(args.first, args.first + args.count)
    ]
    start, results = time.time(), []
    log = open(args.log, "a") if args.log else None
    with multiprocessing.Pool(args.jobs) as pool:
        for r in pool.imap_unordered(one, tasks):
            results.append(r)
            if log:
                print(json.dumps(r), file=log, flush=True)
            for mode, (state, why) in r["modes"].items():
                if state in ("wrong", "crash"):
                    print(
                        f"{state}: case {r['index']} of seed {r['seed']}, {mode}: {why}\n  "
                        + "\n  ".join(r.get("reduced", r["said"])),
                        flush=True,
                    )
            if is_false_alarm(r["modes"]):
                print(
                    f"false alarm: case {r['index']} of seed {r['seed']}: "
                    f"{r['modes']['verified'][1]}",
                    flush=True,
                )
    sys.exit(0 if report(results, time.time() - start) else 8)


if __name__ == "__main__":
    main()
