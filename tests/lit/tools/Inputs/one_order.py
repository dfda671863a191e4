"""Reads gpt2c-dump --json: whether the versions of @extend treat a row alike, step by step."""
import json
import sys

versions = [f for f in json.load(sys.stdin)["functions"] if f["name"] == "extend"]
products = {i for f in versions for i, s in enumerate(f["steps"]) if "sum_order" in s}
for f in versions:
    for i, (a, b) in enumerate(zip(versions[0]["steps"], f["steps"], strict=False)):
        alike = (a["sum_order"] == b.get("sum_order") if "sum_order" in a
                 else all(a[key] == b[key] for key in ("kernel", "block", "grid", "op")))
        if not alike:
            sys.exit(f"step {i}, {a['op']} and {b['op']}, differ")
    if len(f["steps"]) != len(versions[0]["steps"]):
        sys.exit("numbers of steps differ")
if len(versions) < 2 or not products:
    sys.exit("there is nothing to compare")
print(f"{len(versions)} versions of @extend, {len(versions[0]['steps'])} steps of "
      f"{len(products)} products, all alike")
