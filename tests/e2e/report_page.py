#!/usr/bin/env python3
"""report_page.py REPORT CHROMIUM: the page in headless Chromium, as wide as a desktop and as a
phone: on a phone nothing is wider than the window, with the ops of the imported graph, too."""
import html
import json
import pathlib
import re
import subprocess
import sys
import tempfile

report, chromium = sys.argv[1:]
SCRIPT = """setTimeout(() => {
  const page = document.getElementById("page").contentDocument;
  const parts = () => [...page.querySelectorAll(".scroll, .canvas")].map(
    e => [e.id, e.scrollWidth, e.clientWidth]);
  const after = parts();
  page.getElementById("graph-before").click();
  document.getElementById("out").textContent = "<<" + JSON.stringify({
    title: page.getElementById("title").textContent, width: page.documentElement.scrollWidth,
    inside: page.documentElement.clientWidth, parts: after.concat(parts()),
    boxes: page.querySelectorAll("svg .frame").length}) + ">>";
}, 1000);"""


def seen(width):
    with tempfile.TemporaryDirectory() as folder:
        frame = pathlib.Path(folder, "frame.html")
        page = pathlib.Path(report).resolve().as_uri()
        frame.write_text(f'<!doctype html><iframe id="page" src="{page}" width="{width}" '
                         f'height="900" style="border:0"></iframe><pre id="out"></pre>'
                         f"<script>{SCRIPT}</script>", encoding="utf-8")
        done = subprocess.run(
            [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             "--allow-file-access-from-files", f"--user-data-dir={folder}/profile",
             "--virtual-time-budget=4000", "--dump-dom", frame.as_uri()],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120, check=False)
    found = re.search(r"&lt;&lt;(.*?)&gt;&gt;", done.stdout)
    assert found, f"{width}: Chromium gave nothing: {done.stdout[-500:]} {done.stderr[-500:]}"
    return json.loads(html.unescape(found[1]))


for wide in (1280, 390):
    got = seen(wide)
    print(wide, got)
    assert got["title"] == "sample" and got["boxes"] > 8, got
    assert got["width"] <= got["inside"] <= wide, got
    if wide == 390:
        for part, width, room in got["parts"]:
            assert width <= room, f"{part} is {width} wide in {room}"
