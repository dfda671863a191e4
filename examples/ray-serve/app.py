"""gpt2c-serve under Ray Serve, which places, watches and scales its replicas.

    serve run app:build plan=/plans/model.plan [device=cuda] [min_replicas=1] [max_replicas=4]
        [num_gpus=1] [flags="--max-num-seqs=64"]

Every replica starts a gpt2c-serve of its own on a GPU that Ray gives it, and hands requests on to
it: bodies and answers as they are, a stream piece by piece. Ray starts a replica anew whose server
has died, asks /health of each, and adds and removes replicas by how many requests each has. The
tokens pass through Python here. Where that is too slow let Ray place the servers and clients ask
them directly, through HAProxy: GET /-/server of the application says where one is.
"""
import asyncio
import os
import re
import shlex
import signal
import subprocess
import threading

import aiohttp
import ray
from ray import serve
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

# Those of the two hops; what is between them is no business of the other side.
OWN_HEADERS = {"host", "content-length", "transfer-encoding", "connection", "keep-alive", "date",
               "server"}


@serve.deployment(max_ongoing_requests=256, health_check_period_s=2, health_check_timeout_s=5,
                  graceful_shutdown_timeout_s=70)
class Server:
    def __init__(self, plan, device, flags):
        self.log, self.changed, self.port, self.ready = [], threading.Condition(), None, False
        self.host = ray.util.get_node_ip_address()
        self.process = subprocess.Popen(
            ["gpt2c-serve", plan, f"--device={device}", f"--host={self.host}", "--port=0",
             "--log-format=none", *shlex.split(flags)], stderr=subprocess.PIPE, text=True)
        threading.Thread(target=self.read, daemon=True).start()
        with self.changed:
            if not self.changed.wait_for(lambda: self.ready, timeout=120):
                raise RuntimeError("gpt2c-serve does not start: " + "".join(self.log[-20:]))
        self.session = None

    def read(self):
        for line in self.process.stderr:
            with self.changed:
                self.log = self.log[-100:] + [line]
                if found := re.search(r"listening at http://.*:(\d+)", line):
                    self.port = int(found[1])
                self.ready = self.ready or line.startswith("ready in")
                self.changed.notify_all()

    @property
    def url(self):
        return f"http://{self.host}:{self.port}"

    async def connected(self):
        if self.session is None:  # on the loop that requests run on
            self.session = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=5),
                connector=aiohttp.TCPConnector(limit=0))
        return self.session

    async def check_health(self):
        """What Ray asks; a replica for which this fails is started anew."""
        if self.process.poll() is not None:
            raise RuntimeError(f"gpt2c-serve ended with {self.process.returncode}")
        session = await self.connected()
        async with session.get(self.url + "/health") as answer:
            if answer.status != 200:
                raise RuntimeError(f"/health says {answer.status}")

    async def __call__(self, request: Request):
        if request.url.path.endswith("/-/server"):
            return JSONResponse({"url": self.url, "pid": self.process.pid})
        headers = {k: v for k, v in request.headers.items() if k.lower() not in OWN_HEADERS}
        session = await self.connected()
        try:
            answer = await session.request(request.method, self.url + request.url.path,
                                           data=await request.body(), headers=headers)
        except aiohttp.ClientError as error:
            return JSONResponse({"error": {"message": str(error), "type": "unavailable_error",
                                           "param": None, "code": "no_server"}}, 503)
        kept = {k: v for k, v in answer.headers.items() if k.lower() not in OWN_HEADERS}
        if answer.headers.get("Content-Type", "").startswith("text/event-stream"):
            return StreamingResponse(self.pieces(answer), answer.status, kept)
        body = await answer.read()
        return Response(body, answer.status, kept)

    @staticmethod
    async def pieces(answer):
        try:  # what has come meanwhile is one piece
            async for piece in answer.content.iter_any():
                yield piece
        finally:  # a client that goes away ends the answer
            answer.close()

    def __del__(self):
        process = getattr(self, "process", None)
        if process and process.poll() is None:
            process.send_signal(signal.SIGTERM)  # it finishes its answers
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()


def build(args):
    device = args.get("device", "cuda")
    gpus = float(args.get("num_gpus", 0 if device == "cpu" else 1))
    return Server.options(
        ray_actor_options={"num_gpus": gpus, "num_cpus": float(args.get("num_cpus", 1))},
        autoscaling_config={"min_replicas": int(args.get("min_replicas", 1)),
                            "max_replicas": int(args.get("max_replicas", 4)),
                            "target_ongoing_requests": int(args.get("target", 64))},
    ).bind(os.path.abspath(args["plan"]), device, args.get("flags", ""))
