#!/usr/bin/env python3
"""replicas.py PLAN: two servers behind HAProxy, as deploy/haproxy.cfg has them: one is killed under
load, one is started again, plans change under load."""
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time

from served import Served, expect, failed

plan = sys.argv[1]
config = (pathlib.Path(os.environ["GPT2C_SOURCE_DIR"]) / "deploy" / "haproxy.cfg").read_text()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def play(port, seconds, rate, during):
    """What gpt2c-bench says of requests that come at a rate, while `during` is called."""
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as work:
        for i in range(int(seconds * rate)):
            work.write(json.dumps({"at": i / rate, "prompt": [1, 2, i % 100], "max_tokens": 12})
                       + "\n")
        work.flush()
        with subprocess.Popen(["gpt2c-bench", f"--url=http://127.0.0.1:{port}", "-o", "json",
                               f"--workload={work.name}"], stdout=subprocess.PIPE) as bench:
            during()
            got = json.loads(bench.communicate()[0])
    expect(bench.returncode == 0, "gpt2c-bench failed")
    return got


def wait_for(port, answers):
    """Until the proxy has so many servers, by its own page."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=5) as s:
                s.sendall(b"GET /;csv HTTP/1.0\r\n\r\n")
                text = b""
                while more := s.recv(65536):
                    text += more
            up = re.findall(rb"^servers,(?:one|two),(?:[^,]*,){15}UP", text, re.M)
            if len(up) == answers:
                return
        except OSError:
            pass
        time.sleep(0.05)
    expect(False, f"the proxy never has {answers} servers")


one, two = Served(plan), Served(plan)
front, page = free_port(), free_port()
text = (config.replace("127.0.0.1:8080", f"127.0.0.1:{front}")
        .replace("127.0.0.1:8001", f"127.0.0.1:{one.port}")
        .replace("127.0.0.1:8002", f"127.0.0.1:{two.port}")
        .replace("check inter 1s", "check inter 200ms"))
text += f"\nfrontend page\n    bind 127.0.0.1:{page}\n    stats enable\n    stats uri /\n"
with tempfile.NamedTemporaryFile("w", suffix=".cfg", delete=False) as file:
    file.write(text)
proxy = subprocess.Popen(["haproxy", "-q", "-db", "-f", file.name])
try:
    wait_for(page, 2)
    got = play(front, 2, 20, lambda: None)
    expect(got["statuses"] == {"200": 40}, f"two servers: {got}")
    shares = [s.metric("generation_tokens_total") for s in (one, two)]
    expect(min(shares) > 0, f"both have a part of the work: {shares}")

    def kill():
        time.sleep(1)
        two.process.send_signal(signal.SIGKILL)

    got = play(front, 5, 20, kill)
    lost = 100 - got["statuses"].get("200", 0)
    # What the dead server had, and what came before the proxy had seen it: retries take most.
    expect(lost <= 20, f"a server that is killed takes {lost} answers with it: {got}")
    wait_for(page, 1)
    got = play(front, 1, 20, lambda: None)
    expect(got["statuses"] == {"200": 20}, f"behind its death: {got}")

    # Another one in its place, at its port.
    again = Served(plan, port=two.port)
    wait_for(page, 2)

    def change():
        for server in (one, again):
            server.process.send_signal(signal.SIGHUP)
            server.line("reloaded in")

    got = play(front, 3, 20, change)
    expect(got["statuses"] == {"200": 60}, f"while plans change: {got}")

    def drain():
        time.sleep(0.5)
        expect(again.stop() == 0, "a server that ends ends with 0")

    got = play(front, 3, 20, drain)
    expect(got["statuses"] == {"200": 60}, f"while a server drains: {got}")
    expect(one.settled(), "pages are left")
    expect(one.stop() == 0, "SIGTERM ends with 0")
finally:
    proxy.kill()
    os.unlink(file.name)
sys.exit(1 if failed else 0)
