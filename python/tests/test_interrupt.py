"""Ctrl-C, event loops, threads, and memory over many generations."""
import asyncio
import gc
import os
import select
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

import gpt2c
from conftest import DEVICE
from gpt2c import SamplingParams

PROMPT = "She opened the door and"
LONG = SamplingParams(temperature=0, max_tokens=400, ignore_eos=True)
MILLISECONDS = 12 if DEVICE == "cpu" else 400  # tokens that take some milliseconds

INTERRUPTED = """
import sys
import gpt2c
llm = gpt2c.LLM(sys.argv[1], "cpu", threads=1)
params = gpt2c.SamplingParams(temperature=0, max_tokens=400, ignore_eos=True)
prompts = ["She opened the door and"] * 400
try:
    if sys.argv[2] == "generate":
        print("ready", flush=True)
        llm.generate(prompts, params)
    else:
        for chunk in llm.stream(prompts, params):
            if chunk.token_ids:
                print("ready", flush=True)
except KeyboardInterrupt:
    again = llm.generate(prompts[:1], gpt2c.SamplingParams(temperature=0, max_tokens=2))
    print("interrupted", again[0].outputs[0].token_ids, flush=True)
"""


@pytest.mark.parametrize("how", ["generate", "stream"])
def test_ctrl_c_ends_a_generation(plan: gpt2c.Plan, llm: gpt2c.LLM, how: str) -> None:
    # Whoever started the tests in the background of a script had Ctrl-C ignored.
    process = subprocess.Popen([sys.executable, "-c", INTERRUPTED, plan.path, how],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    assert process.stdout and process.stdout.readline() == "ready\n"
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)  # without Ctrl-C it takes many minutes
    two = llm.generate(PROMPT, SamplingParams(temperature=0, max_tokens=2))
    assert process.returncode == 0, errors
    assert output.endswith(f"interrupted {two[0].outputs[0].token_ids}\n"), output + errors


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
@pytest.mark.parametrize("where", ["__init__", "_over", "_take", "_chunk"])
@pytest.mark.parametrize("how", ["sync", "async"])
def test_an_exception_in_a_stream_ends_it(llm: gpt2c.LLM, monkeypatch: pytest.MonkeyPatch,
                                          how: str, where: str, error: type[BaseException]) -> None:
    """Ctrl-C is raised wherever Python is. Who holds the error holds the stream, too."""
    two = SamplingParams(temperature=0, max_tokens=2)
    expected = llm.generate(PROMPT, two)[0].outputs
    streams: list[gpt2c.Stream] = []
    create = gpt2c.Stream.__init__

    def kept(stream: gpt2c.Stream, *given: Any) -> None:
        create(stream, *given)
        streams.append(stream)
        if where == "__init__":
            select.select([stream._core.fileno()], [], [], 30)  # a token that nobody will read
            raise error("planted")

    def planted(*_: Any) -> Any:
        raise error("planted")

    async def read() -> None:
        try:
            async for _ in llm.stream([PROMPT] * 400, LONG):
                pass
        except error as raised:
            errors.append(raised)

    errors: list[BaseException] = []
    with monkeypatch.context() as patch:
        patch.setattr(gpt2c.Stream, "__init__", kept)
        if where != "__init__":
            patch.setattr(gpt2c.Stream, where, planted)
        if how == "async":
            asyncio.run(read())
        else:
            try:
                for _ in llm.stream([PROMPT] * 400, LONG):
                    pass
            except error as raised:
                errors.append(raised)
    assert len(errors) == len(streams) == 1 and str(errors[0]) == "planted"
    begin = time.monotonic()
    assert llm.generate(PROMPT, two)[0].outputs == expected
    assert time.monotonic() - begin < 20  # the answers that were asked for take many minutes
    with pytest.raises(StopIteration):
        next(streams[0])


def test_exit_in_the_middle_of_a_stream(plan: gpt2c.Plan) -> None:
    script = ("import sys, gpt2c\n"
              "llm = gpt2c.LLM(sys.argv[1], 'cpu')\n"
              "stream = llm.stream(['Once'] * 400, gpt2c.SamplingParams(max_tokens=400))\n"
              "next(stream)\n"
              "sys.exit(3)\n")
    done = subprocess.run([sys.executable, "-c", script, plan.path], timeout=60)
    assert done.returncode == 3


def test_asyncio(plan: gpt2c.Plan, llm: gpt2c.LLM) -> None:
    params = SamplingParams(temperature=0, max_tokens=MILLISECONDS)
    expected = llm.generate(PROMPT, params)[0].outputs[0]

    async def stream() -> tuple[str, int]:
        text, ticks = "", 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0.001)
        ticking = asyncio.create_task(tick())
        async for chunk in llm.stream(PROMPT, params):
            text += chunk.text
        ticking.cancel()
        return text, ticks

    text, ticks = asyncio.run(stream())
    assert text == expected.text
    assert ticks > 3  # the loop ran on

    async def several() -> list[Any]:
        return await asyncio.gather(*(llm.agenerate(PROMPT, params) for _ in range(5)))

    for out in asyncio.run(several()):
        assert out[0].outputs[0] == expected


def test_a_cancelled_task_ends_its_generation(llm: gpt2c.LLM) -> None:
    async def run() -> float:
        async def read() -> None:
            async with llm.stream([PROMPT] * 400, LONG) as stream:
                async for _ in stream:
                    pass
        task = asyncio.create_task(read())
        await asyncio.sleep(0.3)
        begin = time.monotonic()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return time.monotonic() - begin

    assert asyncio.run(run()) < 20
    assert llm.generate(PROMPT, SamplingParams(max_tokens=2))[0].finished


def test_errors_reach_those_who_wait(llm: gpt2c.LLM) -> None:
    async def run() -> None:
        with pytest.raises(gpt2c.UsageError, match="the model's ids go from 0 to 4095"):
            await llm.agenerate([5000])
    asyncio.run(run())
    for prompts, params, words in (
            ([5000], None, "go from 0 to 4095"),
            ([1] * 600, None, "longer than the plan's context of 512"),
            ([], None, "there is no prompt"),
            ("", None, "prompt 1 is empty"),
            ([[]], None, "prompt 1 is empty"),
            ("a", SamplingParams(top_p=2.0), "top"),
            ("a", SamplingParams(top_k=-5), "top"),
            ("a", SamplingParams(temperature=-1.0), "temperature"),
            (["a", "b"], [SamplingParams()], "1 sets of sampling parameters are given for 2")):
        with pytest.raises(gpt2c.UsageError, match=words):
            llm.generate(prompts, params)
    with pytest.raises(gpt2c.UnsupportedError, match="prompt_logprobs are the engine's"):
        llm.generate("a", SamplingParams(prompt_logprobs=1), slide=4)
    with pytest.raises(gpt2c.UsageError, match="prompt_logprobs is 1000"):
        llm.generate("a", SamplingParams(prompt_logprobs=1000))
    for name, wrong in (("n", 0), ("max_tokens", 0), ("logprobs", -1), ("prompt_logprobs", -1),
                        ("seed", -1), ("stop", ""), ("min_tokens", 17), ("allowed_token_ids", [])):
        more: Any = {name: wrong}
        with pytest.raises(gpt2c.UsageError, match=name):
            SamplingParams(**more)


def test_threads_take_turns_and_do_not_hold_the_gil(plan: gpt2c.Plan, llm: gpt2c.LLM) -> None:
    params = SamplingParams(temperature=0, max_tokens=MILLISECONDS)
    expected = llm.generate(PROMPT, params)[0].outputs[0]
    other = gpt2c.LLM(plan, DEVICE, threads=1)
    answers: list[Any] = []

    def work(who: gpt2c.LLM) -> None:
        for _ in range(3):
            answers.append(who.generate(PROMPT, params)[0].outputs[0])

    threads = [threading.Thread(target=work, args=(who,)) for who in (llm, llm, other, other)]
    for t in threads:
        t.start()
    counted = 0
    while any(t.is_alive() for t in threads):
        counted += 1
        time.sleep(0.001)
    assert len(answers) == 12 and all(a == expected for a in answers)
    assert counted > 10

    # A call of the device itself leaves the GIL to others.
    session = gpt2c.Session(plan, "cpu", threads=1)
    thread = threading.Thread(target=session.logits, args=([[1] * 256] * 4,))
    thread.start()
    counted = 0
    while thread.is_alive():
        counted += 1
        time.sleep(0.001)
    assert counted > 10


def resident() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_memory_is_flat_over_200_generations(llm: gpt2c.LLM) -> None:
    params = SamplingParams(n=2, seed=1, max_tokens=3, logprobs=1)

    def generations(count: int) -> None:
        for i in range(count):
            llm.generate([PROMPT, "Once"], params)
            if i % 10 == 0:
                next(llm.stream(PROMPT, LONG))  # left in the middle
    generations(30)
    gc.collect()
    before, descriptors = resident(), len(os.listdir("/proc/self/fd"))
    generations(200)
    gc.collect()
    assert resident() - before < 8 << 20
    assert len(os.listdir("/proc/self/fd")) == descriptors
    assert threading.active_count() == 1


def test_objects_keep_what_they_need(plan: gpt2c.Plan) -> None:
    stream = gpt2c.LLM(gpt2c.Plan(plan.path), DEVICE, threads=1).stream(
        PROMPT, SamplingParams(temperature=0, max_tokens=8))
    gc.collect()
    assert sum(len(c.token_ids) for c in stream) == 8
    tokenizer = gpt2c.Plan(plan.path).tokenizer
    gc.collect()
    assert tokenizer and tokenizer.decode(tokenizer.encode(PROMPT)) == PROMPT
