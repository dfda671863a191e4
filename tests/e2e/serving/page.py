#!/usr/bin/env python3
"""page.py PLAN CHROMIUM: the page at / in headless Chromium, as wide as a desktop and as a phone:
it shows numbers that change, and nothing is wider than the window."""
import html
import http.client
import http.server
import json
import re
import subprocess
import sys
import tempfile
import threading
import time

from served import Served, expect, failed

plan, chromium = sys.argv[1:]
FRAME = """<!doctype html><title>frame</title><iframe id="page" src="/" style="border:0"
width="WIDTH" height="900"></iframe><pre id="out"></pre><script>
setTimeout(() => {
  const page = document.getElementById("page").contentDocument;
  const cards = [...page.querySelectorAll("section")];
  const rect = e => e.getBoundingClientRect();
  document.getElementById("out").textContent = "<<" + JSON.stringify({
    state: page.getElementById("state").textContent,
    model: page.getElementById("model").textContent,
    width: page.documentElement.scrollWidth,
    rows: new Set(cards.map(e => Math.round(rect(e).top))).size,
    cards: cards.map(e => [e.querySelector("h2").textContent,
      e.querySelector("output").textContent, Math.ceil(rect(e).right), Math.floor(rect(e).left),
      e.querySelector("polyline").getAttribute("points").split(" ").length]),
  }) + ">>";
}, 4500);
</script>"""
server = Served(plan)


class Proxy(http.server.BaseHTTPRequestHandler):
    """The server's own pages, and one that holds them in a frame of some width."""

    def do_GET(self):
        if self.path.startswith("/frame"):
            body, kind = FRAME.replace("WIDTH", self.path[6:]).encode(), "text/html"
        else:
            if self.path == "/metrics":  # the browser's clock waits for it: time for some answers
                time.sleep(0.5)
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
            connection.request("GET", self.path)
            answer = connection.getresponse()
            body, kind = answer.read(), answer.headers["Content-Type"]
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


proxy = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
threading.Thread(target=proxy.serve_forever, daemon=True).start()
over = threading.Event()


def work():
    while not over.is_set():
        server.complete(prompt="The river", max_tokens=10, ignore_eos=True)


threading.Thread(target=work, daemon=True).start()
for width, least, most in ((1280, 2, 4), (390, 4, 8)):
    with tempfile.TemporaryDirectory() as profile:
        done = subprocess.run(
            [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             f"--user-data-dir={profile}", "--virtual-time-budget=8000", "--dump-dom",
             f"http://127.0.0.1:{proxy.server_port}/frame{width}"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120, check=False)
    found = re.search(r"&lt;&lt;(.*?)&gt;&gt;", done.stdout)
    if not found:
        expect(False, f"{width}: Chromium gave nothing: {done.stdout[-500:]} {done.stderr[-500:]}")
        continue
    seen = json.loads(html.unescape(found[1]))
    print(width, seen)
    expect(seen["state"] == "ready" and seen["model"] == "sample", f"{width}: {seen}")
    expect(seen["width"] <= width, f"the page is {seen['width']} wide in {width}")
    expect(least <= seen["rows"] <= most, f"{width}: cards in {seen['rows']} rows")
    expect(len(seen["cards"]) == 8, f"{width}: {len(seen['cards'])} cards")
    for title, text, right, left, points in seen["cards"]:
        expect(re.match(r"[\d.,]+( |$)", text), f"{width}: {title} shows {text!r}")
        expect(left >= 0 and right <= width, f"{width}: {title} from {left} to {right}")
        expect(points >= 2, f"{width}: {title} has {points} points")
over.set()
sys.exit(1 if failed else 0)
