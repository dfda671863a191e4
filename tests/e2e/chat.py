#!/usr/bin/env python3
"""chat.py PLAN RAW: gpt2c-run --chat with a plan that has the template of chat-folder, and with one
that has none. Each answer is that to the whole conversation, rendered here and continued afresh.
Prints what is not as it should be."""
import random
import re
import subprocess
import sys

plan, raw = sys.argv[1:]
failed = []
EOS = "<|endoftext|>"


def expect(condition, what):
    if not condition:
        failed.append(what)
        print(f"FAIL: {what}")


def run(*flags, say="", model=plan):
    done = subprocess.run(["gpt2c-run", model, "--device=cpu", *flags], input=say.encode(),
                          capture_output=True)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def render(messages):
    """What the template makes of a conversation."""
    turns = "".join(f"<|{role}|>{text}{EOS if role == 'assistant' else ''}\n"
                    for role, text in messages)
    return turns + "<|assistant|>"


def afresh(messages, *flags):
    with open("prompt.txt", "w", encoding="utf-8", newline="") as file:
        file.write(render(messages) + "\n")
    code, out, said = run("--prompt-file=prompt.txt", "--add-bos=no", *flags)
    expect(code == 0, f"the prompt of {messages}: {said}")
    return out.removesuffix("\n")


def byTurns():
    """Random turns: each costs what is new, and is answered as all of it together."""
    words = "The river was old and she opened a door caf\u00e9 \U0001f600 why {{ x }} 7".split()
    draw = random.Random(35)
    for system in ("", "Be kind. "):
        turns = [" ".join(draw.choices(words, k=draw.randint(1, 9))) for _ in range(4)]
        flags = [f"--system={system}"] if system else []
        code, out, said = run("--chat", "-n", "9", *flags, say="\n".join(turns))
        messages = [("system", system)] if system else []
        wanted = ""
        for turn in turns:
            messages.append(("user", turn))
            messages.append(("assistant", afresh(messages, "-n", "9")))
            wanted += messages[-1][1] + "\n"
        expect(code == 0 and out == wanted, f"{turns}: {out!r}, not {wanted!r}; {said}")
        counts = [[int(n or 0) for n in found] for found in
                  re.findall(r"\[(\d+) \+ (\d+) tokens, (?:(\d+) of them kept)?", said)]
        expect(len(counts) == len(turns), f"a line for each turn: {said}")
        for (prompt, answer, kept), (before, _, _) in zip(counts[1:], counts):
            expect(before <= kept < prompt, f"a turn of {prompt} tokens keeps {kept} of {before}")


def commands():
    turns = "The river\n/regen\n/system Be old.\nand she\n/clear\nThe river\n\nforbidden\nno\n"
    code, out, said = run("--chat", "--system=Be kind.", "-n", "6", say=turns)
    kind, old = ("system", "Be kind."), ("system", "Be old.")
    first = [("user", "The river"), ("assistant", afresh([kind, ("user", "The river")], "-n", "6"))]
    again = [old, ("user", "The river"), ("assistant", afresh([old, first[0]], "-n", "6"))]
    wanted = [first[1][1], first[1][1], afresh([old, *first, ("user", "and she")], "-n", "6"),
              again[2][1], afresh([*again, ("user", "no")], "-n", "6")]
    expect(code == 0 and out == "".join(w + "\n" for w in wanted), f"commands: {out!r} {wanted}")
    for text in ("the same again", "no text to go on with", "this is not said", "is taken back"):
        expect(text in said, f"no '{text}' in {said}")
    # -i alone talks by the template where there is one, and --raw does not.
    both = [run("-i", *flags, "-n", "6", say="The river\n")[1] for flags in ([], ["--raw"])]
    expect(both == [afresh([first[0]], "-n", "6") + "\n", run("--prompt=The river", "-n", "6")[1]],
           f"-i with and without --raw: {both}")


def atOnce():
    """Prompts that are first turns; a template of the user's; answers until the context is full."""
    code, out, said = run("--chat", "--prompt=The river", "--prompt=and", "-n", "6")
    wanted = "".join(f"[{i}] {afresh([('user', t)], '-n', '6')}\n"
                     for i, t in enumerate(["The river", "and"], 1))
    expect(code == 0 and out == wanted, f"two chats at once: {out!r} {said}")
    with open("mine.jinja", "w", encoding="utf-8") as file:
        file.write("{{ messages[-1].content }} and")
    for model in (plan, raw):
        mine = run("--chat-template=mine.jinja", "--prompt=The river", "-n", "6", model=model)
        expect(mine[1] == run("--prompt=The river and", "-n", "6", model=model)[1], f"mine: {mine}")
    code, out, said = run("--chat", "--prompt=The river", "--output=json", "--ignore-eos")
    expect(code == 0 and '"finish_reason":"context"' in out.replace(" ", ""),
           f"an answer without -n: {out[-300:]} {said}")


def refused():
    code, _, said = run("--chat", "--prompt=a", model=raw)
    expect(code == 4 and "no chat template" in said and "--chat-template" in said,
           f"a plan without a template: {code} {said}")
    expect(run("-i", "-n", "3", say="The\n", model=raw)[0] == 0, "-i of a plan without one")
    for flags in (["--chat", "--ids=1"], ["--chat", "--prompt=a", "--add-bos=no"], ["--raw"],
                  ["-i", "--raw", "--chat"], ["--chat", "--prompt=forbidden"],
                  ["--chat-template=/dev/null", "--prompt=a"]):
        code, out, said = run(*flags)
        expect(code == 1 and not out and "error: " in said, f"{flags}: {code} {out} {said}")
    with open("mine.jinja", "w", encoding="utf-8") as file:
        file.write("{% for %}")
    code, _, said = run("--chat-template=mine.jinja", "--prompt=a")
    expect(code == 4 and "line 1" in said, f"a template that is none: {code} {said}")


def sampling():
    """What the model's makers advise is taken where it is asked for alone; flags go over it."""
    flags = ["--prompt=The river", "-n", "12"]
    advised = ["--temperature=0.6", "--top-p=0.9", "--repeat-penalty=1.1"]
    greedy, model = run(*flags)[1], run(*flags, "--sampling=model")[1]
    expect(greedy != model == run(*flags, *advised)[1], f"--sampling=model: {greedy!r} {model!r}")
    over = run(*flags, "--sampling=model", "--temperature=2", "--seed=3")[1]
    expect(over == run(*flags, "--temperature=2", "--seed=3", *advised[1:])[1] != model,
           f"flags over the advice: {over!r}")
    code, _, said = run(*flags, "--sampling=model", model=raw)
    expect(code == 1 and "generation_config.json" in said, f"no advice: {code} {said}")


for test in (byTurns, commands, atOnce, refused, sampling):
    test()
sys.exit(bool(failed))
