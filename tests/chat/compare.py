#!/usr/bin/env python3
"""Compares chat templates with jinja2 as transformers sets it up: every template of templates/
over every conversation, equal texts, and an error where jinja2 has one.
    compare.py RENDER
RENDER: the program of render.cpp. Exit code 77: jinja2 is absent."""
import datetime
import json
import os
import pathlib
import struct
import subprocess
import sys
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from skip import skip  # noqa: E402

try:
    import jinja2
    from jinja2.ext import Extension, loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment
except ImportError:
    skip("Python has no jinja2; scripts/setup.sh --tests installs it")

from cases import CONVERSATIONS, EXPRESSIONS

NOW = 1_700_000_000


class Generation(Extension):
    """{% generation %} .. {% endgeneration %}: what stands in it."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.Scope(body).set_lineno(line)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                      sort_keys=sort_keys)


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def environment():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                        extensions=[Generation, loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda f: datetime.datetime.fromtimestamp(NOW).strftime(f)
    return env


class Ours:
    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def render(self, source, context):
        """The text, and whether it is one; else the error."""
        for data in (source.encode(), json.dumps(context).encode()):
            self.process.stdin.write(struct.pack("<I", len(data)) + data)
        self.process.stdin.flush()
        failed, size = struct.unpack("<BI", self.process.stdout.read(5))
        return self.process.stdout.read(size).decode(), not failed


def main():
    os.environ["TZ"] = "UTC"
    time.tzset()
    env, ours = environment(), Ours(sys.argv[1])
    templates = {path.stem: path.read_text() for path in
                 sorted((pathlib.Path(__file__).parent / "templates").glob("*.jinja"))}
    cases = [(name, source, context) for name, source in templates.items()
             for context in CONVERSATIONS]
    cases += [("expression", "{{ " + e + " }}", CONVERSATIONS[0] | {"x": [3, 1, 2], "s": " aBc é ",
               "d": {"b": 1, "a": [True, None, 1.5]}, "n": -7, "f": 2.5}) for e in EXPRESSIONS]
    bad = errors = 0
    for name, source, context in cases:
        try:
            want, fine = env.from_string(source).render(**context), True
        except Exception as error:
            want, fine = f"{type(error).__name__}: {error}", False
            errors += 1
        got, rendered = ours.render(source, context)
        if rendered != fine or (fine and got != want):
            bad += 1
            shown = source if name == "expression" else name
            print(f"{shown}:\n  ours   {got!r}\n  jinja2 {want!r}")
    print(f"{len(templates)} templates, {len(CONVERSATIONS)} conversations, {len(EXPRESSIONS)} "
          f"expressions: {len(cases)} cases ({errors} of them errors), {bad} differences")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
