#!/usr/bin/env python3
"""metrics.py PLAN: what promtool says of /metrics."""
import subprocess
import sys

from served import Served, expect, failed

server = Served(sys.argv[1])
server.complete(prompt="The river", max_tokens=5, n=2)
page = server.request("GET", "/metrics")[2]
done = subprocess.run(["promtool", "check", "metrics"], input=page, text=True,
                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
# Names are vLLM's, whose ':' and "perc" it would have otherwise: those are no errors of the format.
wrong = [line for line in done.stdout.splitlines()
         if line and "should not contain ':'" not in line and "perc" not in line]
expect(not wrong, f"promtool: {wrong}")
expect(server.stop() == 0, "SIGTERM ends with 0")
sys.exit(1 if failed else 0)
