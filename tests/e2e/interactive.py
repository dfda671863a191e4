#!/usr/bin/env python3
"""interactive.py PLAN: gpt2c-run -i on a pseudo-terminal and in a pipe. Prints what is not as it
should be."""
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time

plan = sys.argv[1]
failed = []
state = os.path.join(os.getcwd(), "state")
environment = dict(os.environ, XDG_STATE_HOME=state, TERM="xterm", HOME=os.getcwd(), LC_ALL="C")


def command(*flags):
    return ["gpt2c-run", plan, "--device=cpu", "-i", *flags]


def expect(condition, what):
    if not condition:
        failed.append(what)
        print(f"FAIL: {what}")


def completion(prompt, *flags):
    done = subprocess.run(["gpt2c-run", plan, "--device=cpu", f"--prompt={prompt}", *flags],
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    return done.stdout.decode()


class Terminal:
    """gpt2c-run -i on a pseudo-terminal of its own; Ctrl-C is what the terminal makes of it."""

    def __init__(self, *flags):
        self.text, self.status = "", None
        self.child, self.file = pty.fork()
        if self.child == 0:
            os.execvpe("gpt2c-run", command(*flags), environment)

    def read(self, wait):
        ready, _, _ = select.select([self.file], [], [], wait)
        if not ready:
            return False
        try:
            data = os.read(self.file, 65536)
        except OSError:  # the other side is closed
            return False
        self.text = (self.text + data.decode("utf-8", "replace")).replace("\r\n", "\n")
        return bool(data)

    def until(self, pattern, seconds=60):
        """Waits for the pattern in what was not looked at yet, and takes it."""
        end = time.monotonic() + seconds
        while not (match := re.search(pattern, self.text, re.S)):
            if time.monotonic() > end or (not self.read(1) and self.exited()):
                expect(False, f"waiting for {pattern!r}, there is {self.text!r}")
                self.kill()
                sys.exit(1)
        taken, self.text = self.text[:match.end()], self.text[match.end():]
        return taken

    def prompt(self, seconds=60):
        """Waits for the prompt, and for libedit to take the terminal, which it does behind the
        prompt: until then the terminal makes a NUL of Ctrl-D."""
        self.until("> ")
        end = time.monotonic() + seconds
        while termios.tcgetattr(self.file)[3] & termios.ICANON:
            if time.monotonic() > end:
                expect(False, "a prompt without line editing")
                self.kill()
                sys.exit(1)
            time.sleep(0.01)

    def send(self, text):
        os.write(self.file, text.encode())

    def exited(self):
        if self.status is None:
            done, status = os.waitpid(self.child, os.WNOHANG)
            if done:
                self.status = os.waitstatus_to_exitcode(status)
        return self.status is not None

    def code(self, seconds=30):
        end = time.monotonic() + seconds
        while not self.exited() and time.monotonic() < end:
            self.read(0.1)
        if self.status is None:
            self.kill()
        return self.status

    def kill(self):
        if not self.exited():
            os.kill(self.child, signal.SIGKILL)
            os.waitpid(self.child, 0)


def inPipe():
    """No prompts, no editing, the same texts; commands work."""
    with open("part.txt", "w", encoding="utf-8") as file:
        file.write("The river\n")
    first = completion("The river", "-n", "6")
    turns = "The river\n/regen\n/clear\n/read part.txt\n/nonsense\n\n/clear\na\\\nb\n/exit\nnever\n"
    done = subprocess.run(command("-n", "6"), input=turns.encode(), capture_output=True,
                          env=environment)
    out, said = done.stdout.decode(), done.stderr.decode()
    expect(done.returncode == 0, f"exit code {done.returncode} in a pipe: {said}")
    more = completion("The river" + first.rstrip("\n"), "-n", "6")
    expect(out == first * 3 + more + completion("a\nb", "-n", "6"), f"texts in a pipe: {out!r}")
    expect("\x1b" not in out + said and "> " not in out, "a pipe gets what is for a terminal")
    expect("no command '/nonsense'" in said and "tokens/s" in said, f"messages in a pipe: {said}")
    expect("the same again" in said, "no note that greedy answers come again")
    expect(not os.path.exists(state), "a pipe writes a history")


def afterErrors():
    """A turn that does not fit is taken back; what is no text is refused."""
    turns = "/read /nowhere\n/regen\n\n" + "one two " * 600 + "\nThe river\n"
    done = subprocess.run(command("-n", "6"), input=turns.encode(), capture_output=True,
                          env=environment)
    said = done.stderr.decode()
    expect(done.returncode == 0 and done.stdout.decode() == completion("The river", "-n", "6"),
           f"a turn that is too long: {done.stdout} {said}")
    for text in ("cannot read '/nowhere'", "no answer yet", "no text to go on", "is taken back"):
        expect(text in said, f"no '{text}' in {said}")
    for flags in (["--samples=2"], ["--echo"], ["--output=json"], ["--ids=1"], ["--self-test"],
                  ["--prompt=a", "--prompt=b"]):
        done = subprocess.run(command(*flags), stdin=subprocess.DEVNULL, capture_output=True)
        expect(done.returncode == 1, f"-i {flags}: exit code {done.returncode}")


def sampled():
    """/regen draws with the next seed."""
    flags = ["-n", "6", "--temperature=1", "--seed=7"]
    done = subprocess.run(command(*flags), input=b"The river\n/regen\n", capture_output=True,
                          env=environment)
    wanted = completion("The river", *flags) + completion("The river", *flags[:3], "--seed=8")
    expect(done.stdout.decode() == wanted, f"/regen of sampled text: {done.stdout}")


def onTerminal():
    first = completion("The river", "-n", "6").rstrip("\n")
    shell = Terminal("-n", "6")
    shell.until("/help lists the commands")
    shell.prompt()
    shell.send("The rivex\x7fr\n")  # backspace edits
    shell.until(re.escape(first) + r".*\[2 \+ 6 tokens, ")
    shell.prompt()
    shell.send("/clear\n")
    shell.prompt()
    shell.send("\x1b[A\x1b[A\n")  # the line before the last one
    shell.until(re.escape(first) + r".*\[2 \+ 6 tokens, ")
    shell.send("/clear\n/help\n")
    shell.until("/read FILE")
    shell.send("caf\u00e9\n")
    shell.until(r"tokens/s\]")
    shell.prompt()
    shell.send("\x04")  # the end of the input
    expect(shell.code() == 0, f"exit code {shell.status} at the end of the input")
    with open(os.path.join(state, "gpt2c", "history"), encoding="utf-8") as file:
        kept = file.read()
    expect("river" in kept.replace("\\040", " ") and "caf" in kept, f"history: {kept}")
    mode = os.stat(os.path.join(state, "gpt2c", "history")).st_mode & 0o777
    expect(mode == 0o600, f"the history has mode {mode:o}")
    again = Terminal("-n", "6")  # and has the line of the session before
    again.prompt()
    again.send("\x1b[A")
    again.until("caf")
    again.send("\x03")
    expect(again.code() == 130, f"Ctrl-C ahead of an answer: exit code {again.status}")


def interrupts():
    shell = Terminal("-n", "100000", "--slide=8", "--ignore-eos", "--prompt=The river")
    shell.until(r"river.*river")
    shell.send("\x03")
    shell.until(r"tokens/s, interrupted\]")
    shell.prompt()
    shell.send("/regen\n")  # it still serves
    shell.until(r"river.*river")
    shell.send("\x03")
    shell.until(r"interrupted\]")
    shell.prompt()
    shell.send("\x03")
    expect(shell.code() == 130, f"the second Ctrl-C: exit code {shell.status}")


for test in (inPipe, afterErrors, sampled, onTerminal, interrupts):
    test()
sys.exit(bool(failed))
