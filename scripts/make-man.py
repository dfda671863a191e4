#!/usr/bin/env python3
"""make-man.py TOOL [PAGE.md] > TOOL.1: the man page of a tool from what its --help and --version
say. EXAMPLE is the first block of commands in PAGE.md, EXIT STATUS the table in docs/errors.md."""
import os
import re
import subprocess
import sys

root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def escaped(text):
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.M)


def asked(tool, flag):
    done = subprocess.run([tool, flag], text=True, capture_output=True, check=True)
    return done.stdout


def options(text):
    """(option, description, [(value, description)]) of each option in the help text."""
    found = []
    for line in text.splitlines():
        option = re.match(r" +(-.*?) +- (.*)$", line)
        value = re.match(r"    =(\S+)(?: +- +(.*))?$", line)
        if option:
            found.append((option[1], option[2], []))
        elif value and found:
            found[-1][2].append((value[1], value[2] or ""))
        elif line.startswith("   ") and found and line.strip():
            raise SystemExit(f"make-man: no option and no value: {line}")
    return found


def page(tool, document):
    name = os.path.basename(tool)
    text = asked(tool, "--help")
    version = re.search(r"\d+\.\d+\.\d+", asked(tool, "--version"))[0]
    overview = re.search(r"^OVERVIEW: (.*?)\n\s*\n?USAGE:", text, re.M | re.S)[1].strip()
    overview = re.sub(rf"^{name}: ", "", overview)
    usage = re.search(r"^USAGE: \S+ (.*)$", text, re.M)[1]
    one = overview.splitlines()[0].rstrip(".")
    out = [f'.TH {name.upper()} 1 "" "gpt2c {version}" "gpt2c"', ".SH NAME",
           f"{escaped(name)} \\- {escaped(one[0].lower() + one[1:])}", ".SH SYNOPSIS",
           f".B {escaped(name)}", escaped(usage), ".SH DESCRIPTION", escaped(overview), ".PP",
           "Results go to standard output, everything else to standard error.", ".SH OPTIONS"]
    for option, description, values in options(text):
        out += [".TP", f".B {escaped(option)}", escaped(description)]
        if values:
            out.append(".RS")
        for value, meaning in values:
            out += [".TP", f".B {escaped(value)}", escaped(meaning)]
        if values:
            out.append(".RE")
    if document:
        with open(document, encoding="utf-8") as file:
            block = re.search(r"^```sh\n(.*?)^```$", file.read(), re.M | re.S)
        if block:
            out += [".SH EXAMPLE", ".nf", escaped(block[1].rstrip()), ".fi"]
    out.append(".SH EXIT STATUS")
    with open(os.path.join(root, "docs", "errors.md"), encoding="utf-8") as file:
        for code, _, meaning in re.findall(r"^\| (\d+) \| (\w+) \| (.*?) \|", file.read(), re.M):
            out += [".TP", f".B {code}", escaped(re.sub(r"[`*]|\]\([^)]*\)|\[", "", meaning))]
    out += [".SH SEE ALSO", "The documents in share/gpt2c/docs of the installation."]
    return "\n".join(out) + "\n"


sys.stdout.write(page(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None))
