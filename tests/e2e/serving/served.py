"""gpt2c-serve as tests run it: on the CPU device, at a port that is free."""
import atexit
import http.client
import json
import os
import re
import signal
import subprocess
import threading
import time

failed = []


def expect(condition, what):
    """Prints what is not as it should."""
    if not condition:
        failed.append(what)
        print(f"FAIL: {what}", flush=True)


class Served:
    """gpt2c-serve at a port that is free, ready."""

    def __init__(self, plan, *flags, ready=True, port=0, **environment):
        self.log = []
        self.process = subprocess.Popen(
            ["gpt2c-serve", plan, "--device=cpu", f"--port={port}", *flags], stderr=subprocess.PIPE,
            text=True, env=dict(os.environ, **environment))
        atexit.register(self.process.kill)
        self.changed = threading.Condition()
        threading.Thread(target=self.read, daemon=True).start()
        self.port = int(self.line(r"listening at http://[\d.]+:(\d+)")[1])
        if ready:
            self.line(r"ready in ")

    def read(self):
        for line in self.process.stderr:
            with self.changed:
                self.log.append(line.rstrip("\n"))
                self.changed.notify_all()

    def line(self, pattern, seconds=60):
        """The match of the first line of the log that has the pattern."""
        end = time.monotonic() + seconds
        with self.changed:
            while True:
                for line in self.log:
                    if match := re.search(pattern, line):
                        return match
                if not self.changed.wait(end - time.monotonic()):
                    raise SystemExit(f"FAIL: no '{pattern}' in the log: {self.log}")

    def request(self, method, path, body=None, **headers):
        """(status, headers, text) of one request on a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        text = body if body is None or isinstance(body, (str, bytes)) else json.dumps(body)
        if text is not None:
            headers.setdefault("Content-Type", "application/json")
        connection.request(method, path, text, headers)
        answer = connection.getresponse()
        out = answer.status, answer.headers, answer.read().decode()
        connection.close()
        return out

    def complete(self, **body):
        status, _, text = self.request("POST", "/v1/completions", body)
        if status != 200:
            raise SystemExit(f"FAIL: {body}: {status}: {text}")
        return json.loads(text)

    def metric(self, name):
        page = self.request("GET", "/metrics")[2]
        return float(re.search(rf"^gpt2c:{name}\{{.*?\}} (\S+)$", page, re.M)[1])

    def settled(self):
        """Whether nothing runs and no page is held, after a moment."""
        return self.becomes(dict.fromkeys(("num_requests_running", "num_requests_waiting",
                                           "kv_cache_pages_used", "kv_cache_pages_reserved"), 0))

    def becomes(self, wanted):
        """Whether the metrics have these values before a minute has passed."""
        end = time.monotonic() + 60
        while time.monotonic() < end:
            if all(self.metric(name) == value for name, value in wanted.items()):
                return True
            time.sleep(0.05)
        return False

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)
