"""Plans that several ranks run, see ranks.sh."""
import concurrent.futures
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

source = Path(os.environ["GPT2C_SOURCE_DIR"])
shared = Path(os.environ.get("GPT2C_SHARED_DIR", source / "../shared"))
nightly = "GPT2C_NIGHTLY" in os.environ
failed = False
prompt = ["--ids=3,1,4,1,5", "--ids=2,7", "-n", "10", "--ignore-eos", "--output=ids"]


def fail(text):
    global failed
    failed = True
    print("FAIL:", text, flush=True)


def tool(*command, **options):
    return subprocess.run(command, capture_output=True, text=True, timeout=300, **options)


def compile(model, *flags):
    return tool("gpt2c", str(model), "-o", "model.plan", "--gpu-arch=none", "--precision=fp32",
                "--max-batch=2", *flags)


def tokens(*flags):
    """What the plan continues two prompts with."""
    run = tool("gpt2c-run", "model.plan", "--device=cpu", *prompt, *flags)
    return run.stdout if run.returncode == 0 else f"exit {run.returncode}: {run.stderr}"


def checkExports():
    """Every export by 1, 2 and 4 ranks, and in stages; one whose heads are too few is refused with
    the numbers."""
    folders = [source / "tests/data/gpt2-exports", source / "tests/data/decoders",
               shared / "models/llama", shared / "models/ours"]
    equal = staged = refused = 0
    for folder in folders:
        if not folder.is_dir():
            print(f"without {folder}, which is not here")
            continue
        for model in sorted(folder.glob("*/model.onnx")):
            name = model.parent.name
            for ranks in (2, 4):
                made = compile(model, f"--tensor-parallel={ranks}")
                if made.returncode == 4 and ("leaves rank" in made.stderr or
                                             "no attention over a KV state" in made.stderr or
                                             "is not for" in made.stderr):
                    print(f"{name}: refused: {made.stderr[made.stderr.find('error:'):].strip()}")
                    refused += 1
                    continue
                if made.returncode != 0:
                    fail(f"{name} for {ranks} ranks: {made.stderr}")
                    continue
                whole, parts = tokens(), tokens(f"--ranks={ranks}")
                if whole != parts or "exit" in whole:
                    fail(f"{name}: {ranks} ranks give {parts}, one gives {whole}")
                equal += 1
                ways = [[f"--pipeline-parallel={ranks}"]]
                if ranks == 2:
                    ways += [["--ranks=2", "--pipeline-parallel=2"],
                             ["--pipeline-parallel=2", "--micro-batch=2"]]
                for way in ways:
                    stages = tokens(*way)
                    if "too few for" in stages:
                        continue
                    if whole != stages:
                        fail(f"{name}: {' '.join(way)} gives {stages}, one gives {whole}")
                    staged += 1
    print(f"{equal} plans give equal tokens, {staged} times in stages; {refused} are refused")
    if staged < 15:
        fail("more exports have layers enough for stages")
    if equal < 10:
        fail("there are more exports than that")


#  Processes


def freePort():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Group:
    """Processes of one group; `flags` are those of all, `own` those of rank 0."""

    def __init__(self, ranks, own, flags=(), plans=None, worlds=None, numbers=None,
                 tool="gpt2c-run"):
        port = freePort()
        self.processes = []
        for i in range(ranks):
            rank = numbers[i] if numbers else i
            environment = dict(os.environ, RANK=str(rank), MASTER_ADDR="127.0.0.1",
                               MASTER_PORT=str(port),
                               WORLD_SIZE=str(worlds[i] if worlds else ranks))
            command = [tool, plans[i] if plans else "model.plan", "--device=cpu",
                       "--ranks=env", "--threads=1", *flags, *(own if rank == 0 else [])]
            self.processes.append(subprocess.Popen(command, env=environment, text=True,
                                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE))

    def ends(self, but=(), timeout=60):
        """Exit code, stdout and stderr of each process but some, and how long they took."""
        start = time.monotonic()
        out = []
        for i, p in enumerate(self.processes):
            if i in but:
                continue
            try:
                text, errors = p.communicate(timeout=timeout)
            except subprocess.TimeoutExpired:
                p.kill()
                text, errors = p.communicate()
                fail(f"process {i} hangs: {errors}")
            out.append((p.returncode, text, errors))
        return out, time.monotonic() - start

    def kill(self):
        for p in self.processes:
            p.kill()
            p.communicate()


def expect(what, got, code, text):
    if got[0] != code or text not in got[2]:
        fail(f"{what}: exit {got[0]} with '{got[2].strip()}', expected {code} with '{text}'")


def checkProcesses():
    whole = tokens()
    for ranks in (2, 4):
        out, _ = Group(ranks, prompt).ends()
        if out[0][1] != whole:
            fail(f"{ranks} processes give {out[0][1]}{out[0][2]}, one gives {whole}")
        for i, (code, text, errors) in enumerate(out):
            if code != 0 or (i > 0 and text):
                fail(f"process {i} of {ranks} ends with {code}: {text}{errors}")


def checkStages():
    """Layers in stages, as processes; which differ in that are refused."""
    whole = tokens()
    out, _ = Group(2, prompt, flags=["--pipeline-parallel=2"]).ends()
    if out[0][1] != whole:
        fail(f"2 stages give {out[0][1]}{out[0][2]}, one process gives {whole}")
    for ranks, flags in ((4, ["--pipeline-parallel=2"]), (4, ["--pipeline-parallel=4"]),
                         (2, ["--pipeline-parallel=2", "--micro-batch=1"])):
        out, _ = Group(ranks, prompt, flags=flags).ends()
        if any(got[0] != 0 for got in out) or out[0][1] != whole:
            fail(f"{ranks} processes {flags} give {out}, one gives {whole}")
    (zero, one), _ = Group(2, [*prompt, "--pipeline-parallel=2"], flags=["--ranks-wait=5"]).ends()
    expect("two divisions", one, 6, "or another division")


def checkMeeting():
    """A bad rendezvous is refused with words, on every rank."""
    (zero, one), _ = Group(2, prompt, worlds=[2, 4]).ends()
    for got in (zero, one):
        expect("two numbers of ranks", got, 1,
               "says that there are 4 ranks, rank 0 that there are 2")
    group, _ = Group(3, prompt, worlds=[4, 4, 4], numbers=[0, 1, 1],
                     flags=["--ranks-wait=5"]).ends()
    expect("one rank twice", group[0], 1, "two processes say that they are rank 1")
    compile(source / "examples/sample/model.onnx", "--tensor-parallel=2", "--max-context=40")
    os.rename("model.plan", "other.plan")
    compile(source / "examples/sample/model.onnx", "--tensor-parallel=2,4")
    (zero, one), _ = Group(2, prompt, plans=["model.plan", "other.plan"]).ends()
    for got in (zero, one):
        expect("two plans", got, 6, "rank 1 has another plan than rank 0")
    alone, took = Group(1, prompt, worlds=[2], flags=["--ranks-wait=1"]).ends()
    expect("a rank that does not come", alone[0], 2, "rank 1 did not come to port")
    alone, _ = Group(1, prompt, worlds=[2], numbers=[1], flags=["--ranks-wait=1"]).ends()
    expect("rank 0 does not come", alone[0], 2, "rank 1 did not reach rank 0 at 127.0.0.1:")
    missing, _ = Group(1, prompt, worlds=[3]).ends()
    expect("another number of ranks", missing[0], 6,
           "the plan is not for 3 ranks; it is for 1, 2, 4")
    environment = {k: v for k, v in os.environ.items() if k != "WORLD_SIZE"}
    got = tool("gpt2c-run", "model.plan", "--device=cpu", "--ranks=env", *prompt, env=environment)
    expect("no environment", (got.returncode, "", got.stderr), 1, "WORLD_SIZE is not set")
    got = tool("gpt2c-run", "model.plan", "--ranks=2", *prompt)
    expect("another device", (got.returncode, "", got.stderr), 1, "give --device=cpu")


def checkState():
    """A state that two ranks save is one that four, or one, go on from."""
    def run(ids, *flags):
        return tool("gpt2c-run", "model.plan", "--device=cpu", f"--ids={ids}", "-n", "6",
                    "--ignore-eos", "--output=ids", *flags)

    new = run("3,1,4,1,5", "--ranks=2", "--save-state=state").stdout.strip()
    longer = f"3,1,4,1,5,{new},7"
    whole = run(longer)
    for ranks in ("--ranks=1", "--ranks=4"):
        got = run(longer, "--load-state=state", ranks)
        if got.stdout != whole.stdout or "the state had 10 of the 12 tokens" not in got.stderr:
            fail(f"a state by {ranks}: {got.stdout}{got.stderr}, expected {whole.stdout}")
    got = tool("gpt2c-run", "other.plan", "--device=cpu", "--ids=3", "--load-state=state")
    expect("the state of another plan", (got.returncode, "", got.stderr), 6,
           "'state' is the state of another plan")


def checkServer():
    """Requests at once through a server of two processes; what a request gets where one is lost."""
    port = freePort()
    group = Group(2, [f"--port={port}"], tool="gpt2c-serve")
    url = f"http://127.0.0.1:{port}/v1/completions"

    def ask(text):
        body = json.dumps({"model": "model", "prompt": text, "max_tokens": 8, "temperature": 0})
        request = urllib.request.Request(url, body.encode(), {"Content-Type": "application/json"})
        for _ in range(100):
            try:
                with urllib.request.urlopen(request, timeout=20) as answer:
                    return json.load(answer)["choices"][0]["text"]
            except urllib.error.HTTPError as e:
                if e.code != 503:
                    return f"{e.code}: {e.read().decode()}"
            except urllib.error.URLError:
                pass
            time.sleep(0.1)  # until it listens, and is ready
        return "no answer"

    texts = ["She opened the door and", "The river", "Once upon a time", "He said"] * 3
    expected = {t: tool("gpt2c-run", "model.plan", "--device=cpu", f"--prompt={t}", "-n", "8",
                        "--temperature=0").stdout.removesuffix("\n") for t in set(texts)}
    with concurrent.futures.ThreadPoolExecutor(len(texts)) as pool:
        for text, got in zip(texts, pool.map(ask, texts)):
            if got != expected[text]:
                fail(f"the server continues '{text}' with '{got}', not '{expected[text]}'")
    group.processes[1].kill()
    time.sleep(0.2)
    if "rank 1 is lost" not in (got := ask("The river")):
        fail(f"a request to a server that lost a rank gets {got}")
    group.processes[0].terminate()
    group.kill()


def checkLoss(times, flags):
    """One of four is killed, or stopped, at any moment: the others end soon, and say who it was."""
    compile(source / "examples/sample/model.onnx", "--tensor-parallel=2,4", "--verify=off")
    long = ["--ids=3,1,4,1,5", "-n", "480", "--ignore-eos", "--output=ids"]
    draw = random.Random(5)
    limit = 1.5 if nightly else 3  # beside other tests
    slowest = 0.0
    for i in range(times):
        victim = draw.randrange(4)
        hangs = i % 4 == 3
        group = Group(4, long, flags=flags)
        time.sleep(0.35 + draw.random() * 0.4)
        if any(p.poll() is not None for p in group.processes):
            fail(f"a process ended before one was killed: {group.ends()[0]}")
            continue
        group.processes[victim].send_signal(signal.SIGSTOP if hangs else signal.SIGKILL)
        out, took = group.ends(but=[victim], timeout=20)
        slowest = max(slowest, took)
        group.kill()
        for code, _, errors in out:
            expect(f"a lost rank {victim}", (code, "", errors), 9, f"rank {victim} is lost: ")
            if ", at call " not in errors:
                fail(f"no step is named: {errors}")
        if took > limit:
            fail(f"the others took {took:.1f} s to end")
    print(f"{times} ranks lost {flags}, the others ended within {slowest:.2f} s")


checkExports()
if compile(source / "examples/sample/model.onnx", "--tensor-parallel=2,4").returncode != 0:
    fail("the sample model is not compiled")
checkProcesses()
checkStages()
checkMeeting()
checkState()
if shutil.which("gpt2c-serve"):
    checkServer()
else:
    print("without a server, which this build does not have")
checkLoss(200 if nightly else 8, [])
checkLoss(200 if nightly else 8, ["--pipeline-parallel=2"])
sys.exit(failed)
