#!/usr/bin/env python3
"""harness.py PLAN: lm-evaluation-harness scores texts over /v1/completions as gpt2c-eval does."""
import csv
import math
import os
import subprocess
import sys
import tempfile

from served import Served, expect, failed

plan = sys.argv[1]
os.environ.setdefault("HF_HUB_OFFLINE", "1")
from lm_eval.models.openai_completions import LocalCompletionsAPI  # noqa: E402

sample = os.path.join(os.environ["GPT2C_SOURCE_DIR"], "examples", "sample")
server = Served(plan)
model = LocalCompletionsAPI(model="sample", tokenizer=sample, tokenizer_backend="huggingface",
                            base_url=f"http://127.0.0.1:{server.port}/v1/completions",
                            num_concurrent=1, max_retries=1, tokenized_requests=True)


class Request:
    def __init__(self, *args):
        self.args, self.arguments = args, args


text = "The river ran past the old mill and out to the sea. She said that she had never been there."
ids = model.tok_encode(text)
head = model.tokenizer.decode(ids[:1])
(logprob, _), = model.loglikelihood([Request(head, text[len(head):])])
with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
    file.write(text)
    file.flush()
    done = subprocess.run(["gpt2c-eval", plan, f"--text={file.name}", "--device=cpu", "-o", "csv"],
                          text=True, stdout=subprocess.PIPE, check=True)
wanted = float(list(csv.DictReader(done.stdout.splitlines()))[0]["perplexity"])
got = math.exp(-logprob / (len(ids) - 1))
expect(math.isclose(got, wanted, rel_tol=2e-3), f"a perplexity of {got}, gpt2c-eval has {wanted}")
expect(server.stop() == 0, "SIGTERM ends with 0")
sys.exit(1 if failed else 0)
