#!/usr/bin/env python3
"""rayserve.py PLAN: examples/ray-serve with two replicas on the CPU device: answers, streams, a
server that is killed under load, a new version under load."""
import concurrent.futures
import http.client
import json
import os
import pathlib
import signal
import socket
import sys
import time

os.environ.setdefault("RAY_AUTH_MODE", "disabled")  # on this machine alone
import ray  # noqa: E402
from ray import serve  # noqa: E402

from served import expect, failed  # noqa: E402

plan = os.path.abspath(sys.argv[1])
sys.path.append(str(pathlib.Path(os.environ["GPT2C_SOURCE_DIR"]) / "examples" / "ray-serve"))
os.environ["PYTHONPATH"] = os.pathsep.join([sys.path[-1], os.environ.get("PYTHONPATH", "")])
import app  # noqa: E402

with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]


def ask(method, path, body=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request(method, path, body and json.dumps(body),
                       {"Content-Type": "application/json", "X-Request-Id": "mine"})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, answer.headers, text


def complete(_=0, **more):
    return ask("POST", "/v1/completions", {"prompt": "The river", "max_tokens": 8,
                                           "temperature": 0, **more})


def servers(count, seconds=60):
    """The servers' process ids, once there are so many that answer."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = set()
        for _ in range(12):
            status, _, text = ask("GET", "/-/server")
            if status == 200:
                found.add(json.loads(text)["pid"])
        alive = {pid for pid in found if os.path.exists(f"/proc/{pid}/exe")}
        if len(alive) == count == len(found):
            return alive
        time.sleep(0.3)
    expect(False, f"there are never {count} servers, but {found}")
    return found


def run(flags=""):
    serve.run(app.build({"plan": plan, "device": "cpu", "min_replicas": 2, "max_replicas": 2,
                         "num_cpus": 0.5, "flags": f"--threads=1 {flags}"}))


ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False,
         object_store_memory=100 << 20)
serve.start(http_options={"host": "127.0.0.1", "port": port})
try:
    run()
    first = servers(2)
    status, headers, text = complete()
    expect(status == 200 and headers["X-Request-Id"] == "mine", f"an answer: {status} {text}")
    wanted = json.loads(text)["choices"][0]["text"]
    status, headers, text = complete(stream=True)
    parts = [json.loads(line[6:]) for line in text.split("\n\n") if line[6:7] == "{"]
    expect("".join(p["choices"][0]["text"] for p in parts) == wanted, f"a stream: {text}")
    expect(ask("POST", "/v1/completions", {"prompt": "a", "max_tokens": 9999})[0] == 400,
           "errors come through")
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        asked = []
        for i in range(60):
            asked.append(pool.submit(complete))
            time.sleep(0.05)
            if i == 20:
                os.kill(next(iter(first)), signal.SIGKILL)
        codes = [a.result()[0] for a in asked]
    expect(codes.count(200) >= 40, f"a server is killed: {codes}")
    again = servers(2)
    expect(len(first & again) == 1, f"one replica is new: {first} {again}")
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        changing = pool.submit(run, "--stream-interval=2")
        codes = []
        while not changing.done():
            codes.append(complete()[0])
        changing.result()
    expect(set(codes) == {200}, f"while the application changes: {codes}")
    expect(not servers(2) & again, "a new version has new servers")
finally:
    serve.shutdown()
    ray.shutdown()
sys.exit(1 if failed else 0)
