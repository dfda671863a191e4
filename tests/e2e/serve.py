#!/usr/bin/env python3
"""serve.py PLAN: gpt2c-serve over sockets, on the CPU device. Prints what is not as it should.
A list of cases, over servers that they share."""
import base64
import concurrent.futures
import http.client
import http.server
import json
import os
import pathlib
import random
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

sys.path.append(str(pathlib.Path(__file__).with_name("serving")))
from served import Served, expect, failed  # noqa: E402

plan = sys.argv[1]


def Server(*flags, **more):
    return Served(plan, *flags, **more)


def events(text):
    lines = [line for line in text.split("\n\n") if line and not line.startswith(":")]
    expect(lines[-1] == "data: [DONE]", f"a stream ends with {lines[-1]}")
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


def streamed(server, **body):
    status, headers, text = server.request("POST", "/v1/completions", dict(body, stream=True))
    expect(status == 200 and headers["Content-Type"] == "text/event-stream", "a stream's head")
    parts = {}
    for event in events(text):
        for choice in event["choices"]:
            parts[choice["index"]] = parts.get(choice["index"], "") + choice["text"]
    return parts


def texts(answer):
    return {choice["index"]: choice["text"] for choice in answer["choices"]}


def answers(server):
    done = subprocess.run(["gpt2c-run", plan, "--device=cpu", "--prompt=The river", "-n", "12"],
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    got = server.complete(prompt="The river", max_tokens=12, temperature=0)
    expect(got["choices"][0]["text"] == done.stdout.decode().removesuffix("\n"),
           f"gpt2c-run and the server differ: {got} {done.stdout}")
    expect(got["choices"][0]["finish_reason"] == "length", "an answer of max_tokens")
    expect(got["usage"]["completion_tokens"] == 12, "usage counts")
    draw = random.Random(1)
    bodies = []
    for i in range(12):
        body = {"prompt": draw.choice(["The river", "She said", "Once upon a time there was"]),
                "max_tokens": draw.randrange(1, 40), "seed": i, "n": draw.choice([1, 1, 3]),
                "temperature": draw.choice([0, 0.7, 1.3])}
        if draw.random() < 0.5:
            body["stop"] = draw.choice([" the", [".", " and"]])
        bodies.append(body)
    alone = [texts(server.complete(**body)) for body in bodies]
    with concurrent.futures.ThreadPoolExecutor(len(bodies)) as pool:
        together = list(pool.map(lambda body: streamed(server, **body), bodies))
    for body, a, b in zip(bodies, alone, together):
        expect(a == b, f"{body}: {a} alone, {b} streamed beside others")


def scores(server):
    """Of a text: the same whether it is scored, or generated with log probabilities."""
    made = server.complete(prompt="The river", max_tokens=10, temperature=0, logprobs=2,
                           return_token_ids=True)
    ids = made["prompt_token_ids"] + made["choices"][0]["token_ids"]
    scored = server.complete(prompt=ids, max_tokens=0, echo=True, logprobs=2)["choices"][0]
    expect(scored["logprobs"]["token_logprobs"][0] is None, "the first token has no score")
    expect(scored["text"] == "The river" + made["choices"][0]["text"], "echo alone is the prompt")
    n = len(made["prompt_token_ids"])
    for a, b in zip(scored["logprobs"]["token_logprobs"][n:],
                    made["choices"][0]["logprobs"]["token_logprobs"]):
        expect(abs(a - b) < 1e-3, f"scores {a} and {b} of one token")
    full = list(range(1, 513))
    length = len(server.complete(prompt=full, max_tokens=0, echo=True,
                                 logprobs=0)["choices"][0]["logprobs"]["tokens"])
    expect(length == 512, f"a full context has {length} scores")


def errors(server):
    def refused(status, body, path="/v1/completions", **headers):
        got, _, text = server.request("POST", path, body, **headers)
        error = json.loads(text)["error"]
        expect(got == status and set(error) == {"message", "type", "param", "code"},
               f"{body if len(str(body)) < 80 else '..'}: {got} {text}, expected {status}")
        return error["message"]

    refused(400, "{")
    refused(415, "{}", **{"Content-Type": "text/plain"})
    refused(404, {"prompt": "a", "model": "other"})
    refused(404, {}, "/v1/nothing")
    refused(400, {"prompt": "a", "response_format": {"type": "xml"}})
    said = refused(400, {"prompt": "a", "max_tokens": 1000})
    expect("512" in said, f"a refusal without numbers: {said}")
    refused(400, {"messages": [{"role": "user", "content": "x"}]}, "/v1/chat/completions")
    refused(413, b"x" * (9 << 20))
    refused(431, {}, **{"X-Long": "a" * 20000})
    with socket.create_connection(("127.0.0.1", server.port)) as raw:
        raw.sendall(b"no HTTP at all\r\n\r\n")
        expect(raw.recv(100).startswith(b"HTTP/1.1 400 "), "what is no HTTP is 400")


def constraints(server):
    """Answers that are what a request says, whole and streamed alike, beside others."""
    ids = server.complete(prompt="The", max_tokens=8, min_tokens=8, temperature=0, stop=["e"],
                          return_token_ids=True, cache_salt="mine")["choices"][0]["token_ids"]
    expect(len(ids) == 8, f"min_tokens: {len(ids)}")
    got = server.complete(prompt="The", max_tokens=6, seed=1, allowed_token_ids=[5, 6],
                          return_token_ids=True)["choices"][0]["token_ids"]
    expect(set(got) <= {5, 6}, f"allowed_token_ids: {got}")
    plain = server.complete(prompt="The", max_tokens=12, temperature=0)["choices"][0]["text"]
    word = plain.split()[0]
    text = server.complete(prompt="The", max_tokens=12, temperature=0,
                           bad_words=[word])["choices"][0]["text"]
    expect(text != plain, f"bad_words: {word} in {text}")
    schema = {"type": "object", "required": ["name", "age"], "additionalProperties": False,
              "properties": {"name": {"type": "string", "maxLength": 12},
                             "age": {"type": "integer", "minimum": 0, "maximum": 99}}}
    body = {"prompt": "A cat: ", "max_tokens": 100, "response_format": {
        "type": "json_schema", "json_schema": {"name": "cat", "schema": schema}}}
    status, _, text = server.request("POST", "/v1/completions", body)
    if status == 400 and json.loads(text)["error"]["code"] == "no_grammars":
        print("there is no XGrammar: no test of grammars")
        return

    def cat(seed):
        asked = dict(body, seed=seed, temperature=seed % 3 / 2)
        choice = server.complete(**asked)["choices"][0]
        value = json.loads(choice["text"])
        expect(choice["finish_reason"] == "stop" and list(value) == ["name", "age"]
               and len(value["name"]) <= 12 and 0 <= value["age"] <= 99, f"{choice}")
        events = server.request("POST", "/v1/completions", dict(asked, stream=True))[2]
        parts = [json.loads(line[6:]) for line in events.split("\n\n") if line[6:7] == "{"]
        streamed = "".join(p["choices"][0]["text"] for p in parts)
        expect(streamed == choice["text"], f"streamed {streamed!r}, whole {choice['text']!r}")

    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        list(pool.map(cat, range(12)))
    made = server.complete(prompt="It is ", max_tokens=9, n=3, seed=4,
                           structured_outputs={"choice": ["cold", "warm and dry"]})
    expect(all(c["text"] in ("cold", "warm and dry") for c in made["choices"]), f"{made}")
    for outputs, pattern in (({"regex": "[a-c]{3}-\\d\\d"}, r"[a-c]{3}-\d\d"),
                             ({"grammar": 'root ::= "<" [xy] ">"'}, "<[xy]>")):
        text = server.complete(prompt="a", max_tokens=20, seed=5,
                               structured_outputs=outputs)["choices"][0]["text"]
        expect(re.fullmatch(pattern, text), f"{outputs}: {text!r}")
    for outputs, said in (({"regex": "(a"}, "regex"), ({"json": {"not": {}}}, "keyword 'not'"),
                          ({"grammar": "root ::= ("}, "grammar"), ({"choice": []}, "choice"),
                          ({"json": "{"}, "no JSON")):
        status, _, text = server.request("POST", "/v1/completions",
                                         {"prompt": "a", "structured_outputs": outputs})
        error = json.loads(text)["error"]
        expect(status == 400 and said in error["message"] and error["param"], f"{outputs}: {text}")


def connections(server):
    """Kept alive, pipelined, HTTP/1.0, 100-continue, HEAD."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    first = None
    for _ in range(3):
        connection.request("POST", "/v1/completions", json.dumps({"prompt": "a", "max_tokens": 1}),
                           {"Content-Type": "application/json", "X-Request-Id": "mine"})
        answer = connection.getresponse()
        answer.read()
        expect(answer.headers["X-Request-Id"] == "mine", "an id comes back")
        first = first or connection.sock
        expect(connection.sock is first, "a connection is kept")
    connection.request("HEAD", "/health")
    expect(connection.getresponse().read() == b"", "HEAD has no body")
    connection.close()
    body = b'{"prompt": "a", "max_tokens": 3, "temperature": 0}'
    head = (b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n" % len(body))

    def raw(data, until):
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as s:
            s.sendall(data)
            got = b""
            while until not in got and (more := s.recv(65536)):
                got += more
            return got

    close = b"GET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    two = raw(head + b"\r\n" + body + close, b'{"status":"ok"}')
    expect(two.count(b"HTTP/1.1 200 OK") == 2, f"pipelined: {two}")
    old = raw(b"GET /health HTTP/1.0\r\n\r\n", b"no such text")
    expect(b"Connection: close" in old and old.endswith(b'{"status":"ok"}'), f"HTTP/1.0: {old}")
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as s:
        s.sendall(head + b"Expect: 100-continue\r\nConnection: close\r\n\r\n")
        expect(s.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n", "100 Continue")
        s.sendall(body)
        expect(s.recv(100).startswith(b"HTTP/1.1 200"), "an answer behind 100 Continue")


def load(server):
    """gpt2c-bench --url: what comes back is counted, open loop and closed loop."""
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as work:
        for i in range(40):
            work.write(json.dumps({"at": i / 100, "prompt": [1, 2, 3] if i % 2 else 5,
                                   "max_tokens": 7, "stop": None}) + "\n")
        work.write(json.dumps({"prompt": 5, "max_tokens": 100000}) + "\n")
        work.flush()

        def play(*flags):
            done = subprocess.run(
                ["gpt2c-bench", f"--url=http://127.0.0.1:{server.port}/v1/", "-o", "json",
                 f"--workload={work.name}", *flags], stdout=subprocess.PIPE, check=True)
            return json.loads(done.stdout)

        for flags in ((), ("--streams=3",), ("--rate=inf", "--temperature=1")):
            got = play(*flags)
            expect(got["completed"] == 40 and got["output_tokens"] == 280
                   and got["prompt_tokens"] == 160 and got["failed"] == 1, f"{flags}: {got}")
            expect(got["statuses"] == {"200": 40, "400": 1} and "512" in got["first_problem"],
                   f"{flags}: {got}")
            expect(0 < got["time_to_first_token_ms"]["p50"] <= got["whole_answer_ms"]["max"],
                   f"{flags}: {got}")
            expect(got["connections"] == 3 or flags != ("--streams=3",), f"{got}")
    got = subprocess.run(["gpt2c-bench", "--url=http://127.0.0.1:9", "--workload=-"],
                         stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    expect(got.returncode == 2 and "no answer from 127.0.0.1:9" in got.stderr, f"{got}")


def disconnects(server):
    draw = random.Random(2)
    body = json.dumps({"prompt": "The river", "max_tokens": 400, "ignore_eos": True,
                       "stream": True}).encode()
    head = (b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n" % len(body))
    for i in range(150):
        s = socket.create_connection(("127.0.0.1", server.port), timeout=60)
        whole = head + body
        cut = draw.randrange(1, len(whole)) if i % 3 == 0 else len(whole)
        s.sendall(whole[:cut])
        if i % 3 == 1:
            s.recv(draw.randrange(1, 3000))
        if i % 2:  # with a reset
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        s.close()
    expect(server.settled(), "disconnects leave pages")
    expect(server.becomes({"http_connections": 1}), "disconnects leave connections")


def overload():
    server = Server("--max-num-seqs=1", "--max-num-queued-reqs=2",
                    GPT2C_SERVE_LOG_FORMAT="json")

    def ask(_):
        return server.request("POST", "/v1/completions",
                              {"prompt": "a", "max_tokens": 60, "ignore_eos": True})

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        got = list(pool.map(ask, range(32)))
    codes = {status for status, _, _ in got}
    expect(codes == {200, 429}, f"overload answers {codes}")
    expect(all(headers["Retry-After"] == "1" for status, headers, _ in got if status == 429),
           "429 says when to come again")
    expect(server.settled(), "overload leaves pages")
    lines = [json.loads(line) for line in server.log if line.startswith("{")]
    expect(len(lines) == 32 and all(line["id"] for line in lines), "a line of JSON a request")
    expect(server.stop() == 0, "SIGTERM ends with 0")


def drain():
    server = Server()
    body = {"prompt": "a", "max_tokens": 300, "ignore_eos": True, "stream": True}
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request("POST", "/v1/completions", json.dumps(body),
                       {"Content-Type": "application/json"})
    answer = connection.getresponse()
    server.process.send_signal(signal.SIGTERM)
    server.line("draining 1 requests")
    try:
        expect(server.request("GET", "/health")[0] == 503, "a server that drains is not ready")
    except (ConnectionError, http.client.RemoteDisconnected):
        pass  # it listens no more
    got = events(answer.read().decode())
    expect(got[-1]["choices"][0]["finish_reason"] == "length", "a drained answer is whole")
    expect(server.process.wait(60) == 0, "a drained server ends with 0")

    server = Server("--drain-timeout=0.02")
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request("POST", "/v1/completions", json.dumps(body),
                       {"Content-Type": "application/json"})
    answer = connection.getresponse()
    server.process.send_signal(signal.SIGTERM)
    got = events(answer.read().decode())
    expect(got[-1]["choices"][0]["finish_reason"] == "abort", f"what takes too long: {got[-1]}")
    expect(server.process.wait(60) == 0, "a server that does not wait ends with 0")

    server = Server()
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request("POST", "/v1/completions", json.dumps(body),
                       {"Content-Type": "application/json"})
    connection.getresponse()
    server.process.send_signal(signal.SIGTERM)
    server.line("draining")
    server.process.send_signal(signal.SIGTERM)
    expect(server.process.wait(10) == 0, "a second signal ends at once")


def forcedCalls(server, key):
    """A call of a tool that the model has no choice but to make."""
    def tool(name, **properties):
        return {"type": "function", "function": {"name": name, "parameters": {
            "type": "object", "properties": properties, "required": list(properties)}}}

    tools = [tool("weather", city={"type": "string", "maxLength": 8}, hot={"type": "boolean"}),
             tool("stop")]
    for choice in ("required", {"type": "function", "function": {"name": "weather"}}):
        for seed in range(4):
            status, _, text = server.request("POST", "/v1/chat/completions", {
                "messages": [{"role": "user", "content": "Hi"}], "tools": tools, "seed": seed,
                "tool_choice": choice, "max_tokens": 100}, **key)
            if status == 400 and json.loads(text)["error"]["code"] == "no_grammars":
                return
            choices = json.loads(text).get("choices") if status == 200 else None
            calls = choices[0]["message"].get("tool_calls") if choices else None
            expect(calls and len(calls) == 1, f"{choice}: {text}")
            call = calls[0]["function"] if calls else {"name": "weather", "arguments": "{}"}
            want = ["city", "hot"] if call["name"] == "weather" else []
            expect(list(json.loads(call["arguments"])) == want, f"a forced call: {call}")
            expect(choice == "required" or call["name"] == "weather", f"another's call: {call}")
    status, _, text = server.request("POST", "/v1/chat/completions", {
        "messages": [{"role": "user", "content": "Hi"}], "tools": tools,
        "tool_choice": {"type": "function", "function": {"name": "none"}}}, **key)
    expect(status == 400 and "not among tools" in text, f"a tool that is not there: {text}")


def keys_chats_and_reloads():
    with tempfile.NamedTemporaryFile("w", suffix=".jinja", delete=False) as template:
        template.write("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
                       "{% if tools %}<tool_call>{% endif %}"
                       "{% if add_generation_prompt %}assistant:{% endif %}")
    server = Server("--served-model-name=sample,alias", f"--chat-template={template.name}",
                    GPT2C_SERVE_API_KEY="secret")
    key = {"Authorization": "Bearer secret"}
    expect(server.request("GET", "/v1/models")[0] == 401, "no key")
    models = json.loads(server.request("GET", "/v1/models", **key)[2])["data"]
    expect([m["id"] for m in models] == ["sample", "alias"], f"models: {models}")
    body = {"messages": [{"role": "user", "content": [{"type": "text", "text": "Hello"}]}],
            "max_tokens": 8, "temperature": 0}
    status, _, text = server.request("POST", "/v1/chat/completions", body, **key)
    message = json.loads(text)["choices"][0]["message"]
    expect(status == 200 and message["role"] == "assistant" and message["content"], text)
    whole = server.request("POST", "/v1/completions",
                           {"prompt": "user: Hello\nassistant:", "max_tokens": 8,
                            "temperature": 0}, **key)[2]
    expect(json.loads(whole)["choices"][0]["text"] == message["content"], "a chat is its prompt's")
    forcedCalls(server, key)
    try:
        import openai
    except ImportError:
        print("note: there is no package openai: its client is not tried")
    else:
        client = openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="secret")
        made = client.chat.completions.create(model="sample", **body)
        expect(made.choices[0].message.content == message["content"], "openai's client: a chat")
        parts = client.chat.completions.create(model="alias", stream=True, **body)
        expect("".join(p.choices[0].delta.content or "" for p in parts) == message["content"],
               "openai's client: a stream")
        try:
            made = client.chat.completions.create(
                model="sample", messages=body["messages"], max_tokens=60, response_format={
                    "type": "json_schema", "json_schema": {
                        "name": "answer", "strict": True, "schema": {
                            "type": "object", "properties": {"good": {"type": "boolean"}},
                            "required": ["good"], "additionalProperties": False}}})
            value = json.loads(made.choices[0].message.content)
            expect(isinstance(value["good"], bool), f"openai's client: json_schema: {value}")
        except openai.BadRequestError as error:
            expect(error.code == "no_grammars", f"openai's client: json_schema: {error}")
        made = client.completions.create(model="sample", prompt="a", max_tokens=4, logprobs=2,
                                         echo=True, seed=1)
        expect(len(made.choices[0].logprobs.tokens) == made.usage.total_tokens,
               "openai's client: log probabilities")
        try:
            client.completions.create(model="none", prompt="a")
            expect(False, "openai's client: no error")
        except openai.NotFoundError as error:
            expect(error.param == "model", f"openai's client: {error}")
    server.process.send_signal(signal.SIGHUP)
    server.line("reloaded in")
    expect(server.request("POST", "/admin/reload")[0] == 401, "a reload without a key")
    end = time.monotonic() + 20
    while (got := server.request("POST", "/admin/reload", **key)[0]) == 409:
        expect(time.monotonic() < end, "a reload that does not end")
    expect(got == 200, f"a reload: {got}")
    expect(server.request("POST", "/v1/chat/completions", body, **key)[0] == 200, "after reloads")
    expect(server.stop() == 0, "SIGTERM ends with 0")
    os.unlink(template.name)


def spans():
    """Spans go to a collector, also when the server ends."""
    got = []

    class Collector(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    collector = http.server.HTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=collector.serve_forever, daemon=True).start()
    server = Server(f"--otlp-endpoint=http://127.0.0.1:{collector.server_port}")
    trace, parent = "1" * 32, "2" * 16
    _, headers, _ = server.request("POST", "/v1/completions", {"prompt": "a", "max_tokens": 3},
                                   traceparent=f"00-{trace}-{parent}-01")
    expect(headers["traceparent"].startswith(f"00-{trace}-"), f"traceparent: {headers}")
    server.line(f"trace={trace}")
    expect(server.stop() == 0, "SIGTERM ends with 0")
    all_ = [span for body in got for resource in body["resourceSpans"]
            for scope in resource["scopeSpans"] for span in scope["spans"]]
    expect(sorted(span["name"] for span in all_)
           == ["POST /v1/completions", "decode", "prefill", "queue"], f"spans: {all_}")
    expect(all(span["traceId"] == trace for span in all_), f"spans: {all_}")
    collector.shutdown()


def hidden_states(ids):
    """The rows that the sample's head takes, by ONNX Runtime; None where that is not there."""
    try:
        import numpy
        import onnx
        import onnxruntime
    except ImportError:
        print("note: there is no ONNX Runtime: embeddings are not compared with it")
        return None
    model = onnx.load(os.path.join(os.environ["GPT2C_SOURCE_DIR"], "examples/sample/model.onnx"))
    makers = {name: node for node in model.graph.node for name in node.output}
    node = makers[model.graph.output[0].name]
    while node.op_type not in ("MatMul", "Gemm"):
        node = makers[node.input[0]]
    model.graph.output.append(onnx.helper.make_empty_tensor_value_info(node.input[0]))
    session = onnxruntime.InferenceSession(model.SerializeToString(),
                                           providers=["CPUExecutionProvider"])
    inputs = {}
    for port in session.get_inputs():
        dtype = numpy.int32 if "int32" in port.type else numpy.int64
        inputs[port.name] = numpy.array([ids], dtype) if "ids" in port.name else \
            numpy.ones((1, len(ids)), dtype)
    return session.run([node.input[0]], inputs)[0].reshape(len(ids), -1).astype("float64")


def embeddings():
    subprocess.run(["gpt2c", os.path.join(os.environ["GPT2C_SOURCE_DIR"], "examples/sample/"
                                          "model.onnx"), "-o", "hidden.plan", "--output-hidden",
                    "--gpu-arch=none"], stderr=subprocess.DEVNULL, check=True)
    server = Server("--embeddings=hidden.plan", "--served-model-name=sample")

    def embed(to=server, **body):
        status, _, text = to.request("POST", "/v1/embeddings", body)
        value = json.loads(text)
        expect(status == 200 or "error" in value, f"{body}: {status} {text}")
        return value if status == 200 else value["error"]

    text = "The river ran past the old mill"
    ids = json.loads(server.request("POST", "/tokenize", {"prompt": text})[2])["tokens"]
    got = embed(input=[text, "She said"], model="sample")
    vectors = [item["embedding"] for item in got["data"]]
    expect([item["index"] for item in got["data"]] == [0, 1], f"{got['data']}")
    expect(got["usage"]["prompt_tokens"] > len(ids), f"{got['usage']}")
    expect(abs(sum(x * x for x in vectors[0]) - 1) < 1e-5, "an embedding has length 1")
    expect(embed(input=ids)["data"][0]["embedding"] == vectors[0], "ids are their text")
    packed = embed(input=[ids], encoding_format="base64", model="hidden")["data"][0]["embedding"]
    expect(list(struct.unpack(f"<{len(vectors[0])}f", base64.b64decode(packed)))
           == [struct.unpack("f", struct.pack("f", x))[0] for x in vectors[0]], "base64")
    rows = hidden_states(ids)
    if rows is not None:
        for pooling, wanted in (("last", rows[-1]), ("mean", rows.mean(0))):
            for normal in (True, False):
                made = embed(input=text, pooling=pooling, normalize=normal)["data"][0]["embedding"]
                aim = wanted / (wanted @ wanted) ** 0.5 if normal else wanted
                expect(abs(aim - made).max() < 2e-3 * abs(aim).max(), f"{pooling} {normal}")
    for body, param in (({"input": []}, "input"), ({"input": ""}, "input"), ({}, "input"),
                        ({"input": list(range(1, 600))}, "input"), ({"input": [999999]}, "input"),
                        ({"input": "a", "dimensions": 3}, "dimensions"),
                        ({"input": "a", "encoding_format": "x"}, "encoding_format"),
                        ({"input": "a", "model": "none"}, "model")):
        expect(embed(**body).get("param") == param, f"{body}: {embed(**body)}")
    try:
        import openai
    except ImportError:
        pass
    else:
        client = openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="-")
        made = client.embeddings.create(model="sample", input=text).data[0].embedding
        expect(max(abs(a - b) for a, b in zip(made, vectors[0])) < 1e-6, "openai's client")
    expect(len(server.complete(prompt="a", max_tokens=3)["choices"]) == 1, "answers beside them")
    expect(server.stop() == 0, "SIGTERM ends with 0")
    alone = Served("hidden.plan")
    expect(embed(alone, input=text)["data"][0]["embedding"] == vectors[0], "embeddings alone")
    expect(alone.request("GET", "/health")[0] == 200, "a server of embeddings is ready")
    error = json.loads(alone.request("POST", "/v1/completions", {"prompt": "a"})[2])["error"]
    expect(error["code"] == "no_generation", f"a plan without a head: {error}")
    expect(alone.stop() == 0, "SIGTERM ends with 0")
    os.unlink("hidden.plan")


def commandLines():
    def ends(code, said, *flags, **environment):
        done = subprocess.run(["gpt2c-serve", *flags], stderr=subprocess.PIPE, text=True,
                              env=dict(os.environ, **environment), timeout=60)
        expect(done.returncode == code and said in done.stderr, f"{flags}: {done}")

    ends(1, "--port goes from 0 to 65535", plan, "--port=70000")
    ends(1, "for the environment's GPT2C_SERVE_PORT", plan, GPT2C_SERVE_PORT="x")
    ends(1, "gives logits: compile the model with gpt2c --output-hidden", plan, "--port=0",
         f"--embeddings={plan}")
    ends(1, "is no address", plan, "--host=nowhere")
    ends(1, "--otlp-endpoint is http://HOST:PORT", plan, "--otlp-endpoint=collector:4318")
    ends(2, "cannot read", "none.plan", "--port=0")
    ends(2, "cannot", plan, "--api-key-file=none.txt")


main = Server()
error = json.loads(main.request("POST", "/v1/embeddings", {"input": "a"})[2])["error"]
expect(error["code"] == "no_embeddings", f"a server without embeddings: {error}")
status, _, page = main.request("GET", "/")
expect(status == 200 and "gpt2c" in page, "the page at /")
for part in (answers, scores, errors, constraints, connections, load, disconnects):
    part(main)
expect(main.settled(), "pages are left")
expect(main.stop() == 0, "SIGTERM ends with 0")
for part in (overload, drain, keys_chats_and_reloads, spans, embeddings,
             commandLines):
    part()
sys.exit(1 if failed else 0)
