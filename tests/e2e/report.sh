#!/usr/bin/env bash
# gpt2c --report: a page that a strict parser reads, without anything from the network, with every
# op and step.
set -uo pipefail
sample=$GPT2C_SOURCE_DIR/examples/sample

gpt2c "$sample/model.onnx" -o sample.plan --gpu-arch=none --report=report.html || exit 1
gpt2c-dump sample.plan --json >plan.json || exit 1
python3 - <<'PYTHON' || exit 1
import json
import re
import xml.etree.ElementTree as tree

text = open("report.html", encoding="utf-8").read()
page = tree.fromstring(text)
data = json.loads(page.find(".//script[@id='data']").text)
assert len(page.findall(".//section")) == 6, "remarks, graph, steps, memory, KV state, verification"
links = re.findall(r"""(?:src|href)=["']([^"']*)|url\(([^)]*)\)""", text)
assert all(a.startswith("#") or b.startswith("#") for a, b in links), f"links to elsewhere: {links}"
assert not re.findall(r"https?://(?!www\.w3\.org/2000/svg)", text), "addresses"

assert data["model"] == "sample", "a model.onnx is called as its folder"
assert data["weight_bytes"] > 8e6 and data["kv"]["layers"] == 4, data["kv"]
plan = json.load(open("plan.json"))
assert data["kv"]["bytes"] == plan["kv"]["bytes"]
graphs = {g["name"]: g for g in data["graphs"]}
assert set(graphs) == {"forward", "prefill", "decode", "extend"}, graphs.keys()
decode = graphs["decode"]
assert decode["repeat"]["count"] == 4 and decode["repeat"]["period"] == 7, decode["repeat"]
assert len(decode["nodes"]) == decode["ops"] - 3 * 7, "layers that look alike are there once"
layer = [n["title"].split()[0] for n in decode["nodes"]][1:8]
assert layer == "layer_norm linear append_attention linear layer_norm linear linear".split(), layer
attention = next(n for n in decode["nodes"] if n["title"] == "append_attention")
assert {"matmul", "softmax"} <= {m["title"].split()[0] for m in attention["members"]}
for function in data["functions"]:
    graph = graphs[function["name"]]
    assert len(function["steps"]) == graph["ops"] - 1, "a step for each op but return"
PYTHON
ids=$(grep -o "byId('[a-z-]*')" report.html | sort -u | sed "s/byId('\(.*\)')/\1/")
for id in $ids; do
  grep -qE "id(=|: )[\"']$id[\"']" report.html ||
    { echo "FAIL: the script asks for '$id', which the page does not have"; exit 1; }
done

# On a phone nothing is wider than its window.
if browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome); then
  python3 "$GPT2C_SOURCE_DIR/tests/e2e/report_page.py" report.html "$browser" || exit 1
fi

gpt2c "$sample/model.onnx" -o sample.plan --gpu-arch=none --report=/nowhere/report.html 2>error.txt
[ $? = 2 ] && grep -q "cannot write '/nowhere/report.html'" error.txt ||
  { echo "FAIL: $(cat error.txt)"; exit 1; }
rm -f sample.plan
