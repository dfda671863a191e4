#!/usr/bin/env python3
"""count-tests.py CTEST_JUNIT_XML LIT_XUNIT_XML: prints skipped and failed tests by name, then the
one-line summary.

The ctest entry named "lit" stands for all FileCheck cases; where lit left its own report, that is
counted instead.
"""
import os
import sys
import xml.etree.ElementTree as xml


def ctestResults(path):
    for case in xml.parse(path).getroot().iter("testcase"):
        status, reason = case.get("status"), ""
        skipped = case.find("skipped")
        if skipped is not None:
            reason = skipped.get("message", "")
        if status == "run":
            yield case.get("name"), "passed", ""
        elif status == "notrun" and reason.startswith("SKIP_"):
            output = [line.strip() for line in (case.findtext("system-out") or "").splitlines()]
            if reason.startswith("SKIP_RETURN_CODE"):
                output = [line[9:] for line in output if line.startswith("skipped: ")]
            output = [line for line in output if line and not line.startswith("[")]
            if output:
                yield case.get("name"), "skipped", output[-1]
            else:
                yield case.get("name"), "failed", "skipped, and does not say why"
        elif status == "disabled":
            yield case.get("name"), "skipped", "disabled"
        else:
            yield case.get("name"), "failed", reason


def litResults(path):
    for case in xml.parse(path).getroot().iter("testcase"):
        name = "lit." + case.get("classname", "") + "/" + case.get("name", "")
        if case.find("failure") is not None:
            yield name, "failed", ""
        elif case.find("skipped") is not None:
            yield name, "skipped", case.find("skipped").get("message", "")
        else:
            yield name, "passed", ""


def main():
    ctest, lit = sys.argv[1:]
    if not os.path.exists(ctest):
        print("0 passed, 1 failed, 0 skipped")
        return 1
    results = list(ctestResults(ctest))
    if os.path.exists(lit) and any(name == "lit" for name, _, _ in results):
        results = [r for r in results if r[0] != "lit"] + list(litResults(lit))
    for wanted in ("skipped", "failed"):
        for name, outcome, reason in results:
            if outcome == wanted:
                print(f"{wanted}: {name}" + (f" ({reason})" if reason else ""))
    count = {w: sum(outcome == w for _, outcome, _ in results)
             for w in ("passed", "failed", "skipped")}
    print("{passed} passed, {failed} failed, {skipped} skipped".format(**count))
    return 0 if count["passed"] and not count["failed"] else 1


sys.exit(main())
