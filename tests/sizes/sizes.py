#!/usr/bin/env python3
"""Random graphs of slices, ranges, shapes, reshapes and concatenations of ids[batch, seq], at every
length and a few batches, against ONNX Runtime: every output is equal, or the graph is refused with
the reason. A size that is a guess shows up as a wrong value of what reads it."""

import argparse
import collections
import concurrent.futures
import pathlib
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from skip import skip  # noqa: E402

try:
    import numpy as np
    import onnx
    import onnxruntime
    from onnx import TensorProto, helper
except ModuleNotFoundError as e:
    skip(f"{e.name} for Python is missing (scripts/setup.sh --tests)")

DTYPES = [np.float32, np.float16, None, np.float64, np.int8, np.uint8, np.int32, np.int64, np.bool_]
FAR = 2**63 - 1


class Drawn:
    """A graph that grows by random nodes. Values are drawn by their shape for lengths 5 and 23, so
    that most nodes fit."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.nodes, self.initializers = [], []
        self.tensors = ["ids"]  # i64, any rank
        self.scalars = []  # i64[1]
        self.count = 0

    def constant(self, values, dtype=np.int64):
        name = f"c{len(self.initializers)}"
        value = np.array(values, dtype)
        self.initializers.append(onnx.numpy_helper.from_array(value, name))
        return name

    def node(self, op, inputs, **attributes):
        self.count += 1
        out = f"{op.lower()}{self.count}"
        self.nodes.append(helper.make_node(op, inputs, [out], name=out, **attributes))
        return out

    def size(self):
        """i64[1]: a number that has to do with sizes."""
        r = self.random
        if not self.scalars or r.random() < 0.35:
            x = r.choice(self.tensors[-4:])
            shape = self.node("Shape", [x])
            axis = self.constant([r.choice((-1, -1, 0))])
            self.scalars.append(self.node("Gather", [shape, axis]))
        x = r.choice(self.scalars[-4:])
        if r.random() < 0.3:
            return x
        op = r.choice(("Add", "Sub", "Sub", "Sub", "Mul", "Div", "Mod", "Min", "Max", "Neg",
                       "Rsub"))
        other = self.constant([r.choice((1, 1, 2, 3, 4, 5, 8, 9, 16, 20, 31))])
        if op in ("Mul", "Div", "Mod"):
            other = self.constant([r.choice((2, 3, 4))])
        elif op != "Neg" and r.random() < 0.25:
            other = r.choice(self.scalars)
        if op == "Neg":
            y = self.node("Neg", [x])
        elif op == "Rsub":
            y = self.node("Sub", [other, x])
        else:
            y = self.node(op, [x, other])
        self.scalars.append(y)
        return y

    def bound(self):
        r = self.random
        if r.random() < 0.6:
            return self.constant([r.choice((0, 0, 1, 2, 3, 5, 8, 9, 16, 20, 30, -1, -1, -2, -3, -7,
                                            -8,
                                            -9, -20, -39, -50, 50, FAR, -FAR, 2**31 - 1))])
        return self.size()

    def slice(self):
        r = self.random
        x = r.choice(self.tensors)
        step = r.choice((1, 1, 1, 1, 1, 2, 3, -1, -1, -2))
        axis = self.constant([r.choice((-1, -1, -1, -1, 0))])
        start, end = self.bound(), self.bound()
        if step == 1 and r.random() < 0.5:
            start, end = r.choice(((start, self.constant([FAR])), (self.constant([0]), end)))
        if step < 0 and r.random() < 0.5:
            start, end = self.constant([r.choice((-1, -2))]), self.constant([-FAR])
        return self.node("Slice", [x, start, end, axis, self.constant([step])])

    def concat(self):
        r = self.random
        x = r.choice(self.tensors)
        y = r.choice(self.tensors)
        if r.random() < 0.6:  # both parts of one
            n = self.bound()
            zero, far, axis = self.constant([0]), self.constant([FAR]), self.constant([-1])
            x, y = self.node("Slice", [x, zero, n, axis]), self.node("Slice", [x, n, far, axis])
            if r.random() < 0.5:
                x, y = y, x
        return self.node("Concat", [x, y], axis=r.choice((-1, -1, -1, 0)))

    def reshape(self):
        r = self.random
        x = r.choice(self.tensors)
        kind = r.randrange(6)
        if kind == 0:
            return self.node("Reshape", [x, self.constant([-1])])
        if kind == 1:
            return self.node("Reshape", [x, self.constant([-1, r.choice((1, 1, 2))])])
        if kind == 2:
            return self.node("Reshape", [x, self.constant([0, -1, 1])])
        shape = self.node("Shape", [x])
        if kind == 3:
            wanted = self.node("Concat", [shape, self.constant([1])], axis=0)
            return self.node("Reshape", [x, wanted])
        if kind == 4:
            last = self.node("Gather", [shape, self.constant([-1])])
            wanted = self.node("Concat", [self.constant([-1]), last], axis=0)
            return self.node("Reshape", [x, wanted])
        total = self.node("ReduceProd", [shape], keepdims=1)
        return self.node("Reshape", [x, total])

    def range(self):
        r = self.random
        squeeze = self.constant([0])
        scalar = lambda v: self.node("Squeeze", [v, squeeze])
        known = r.random() < 0.7
        start = scalar(self.constant([r.choice((0, 0, 0, 1, 3, -4))]) if known else self.size())
        limit, delta = scalar(self.size()), r.choice((1, 1, 1, 2, 3, -1, -2))
        inputs = [start, limit, scalar(self.constant([delta]))]
        if r.random() < 0.3:
            inputs = [self.node("Cast", [v], to=TensorProto.INT32) for v in inputs]
            out = self.node("Range", inputs)
            return self.node("Cast", [out], to=TensorProto.INT64) if r.random() < 0.7 else out
        return self.node("Range", inputs)

    def more(self):
        r = self.random
        x = r.choice(self.tensors)
        kind = r.randrange(8)
        if kind == 0:
            return self.node("Unsqueeze", [x, self.constant([r.choice((0, -1))])])
        if kind == 1:
            return self.node("Expand", [self.constant([r.choice((0, 7))]), self.node("Shape", [x])])
        if kind == 2:
            return self.node("ConstantOfShape", [self.node("Shape", [x])],
                             value=helper.make_tensor("v", TensorProto.INT64, [1], [3]))
        if kind == 3:
            return self.node("Add", [x, self.node("ConstantOfShape", [self.node("Shape", [x])],
                             value=helper.make_tensor("v", TensorProto.INT64, [1], [3]))])
        if kind == 4:
            return self.node("Add", [x, r.choice(self.tensors)])
        if kind == 5:
            return self.node("ReduceSum", [x, self.constant([-1])], keepdims=r.choice((0, 1)))
        if kind == 6:
            return self.node("Tile", [x, self.constant([1, r.choice((1, 2))])])
        length = self.node("Gather", [self.node("Shape", [x]), self.constant([-1])])
        return self.node("ConstantOfShape", [length],
                         value=helper.make_tensor("v", TensorProto.INT64, [1], [5]))

    def model(self):
        r = self.random
        for _ in range(r.choice((1, 2, 3, 4, 6))):
            kind = r.choices(("slice", "concat", "reshape", "range", "more"), (8, 3, 3, 3, 3))[0]
            out = getattr(self, kind)()
            self.tensors.append(out)
        outputs = self.tensors[1:][-3:]
        outputs.append(self.node("Shape", [self.tensors[-1]]))
        if r.random() < 0.7:
            outputs.append(self.size())
        if r.random() < 0.4:  # a mean by its own count
            x = self.node("Cast", [self.tensors[-1]], to=TensorProto.FLOAT)
            n = self.node("Cast", [self.node("ReduceProd", [self.node("Shape", [x])], keepdims=0)],
                          to=TensorProto.FLOAT)
            outputs.append(self.node("Div", [self.node("ReduceSum", [x], keepdims=0), n]))
        infos = [helper.make_empty_tensor_value_info(o) for o in dict.fromkeys(outputs)]
        ids = helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch", "seq"])
        graph = helper.make_graph(self.nodes, "sizes", [ids], infos, self.initializers)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def valid_model(seed):
    """The model of a seed and ONNX Runtime's session for it; the first draw that runs."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    for attempt in range(50):
        model = Drawn(seed * 1000 + attempt).model().SerializeToString()
        try:
            session = onnxruntime.InferenceSession(model, options, ["CPUExecutionProvider"])
            for length in (5, 23):
                session.run(None, {"ids": ids(2, length)})
            return model, session
        except Exception:  # of many kinds; most draws that fail do not fit at any length
            continue
    return None, None


def ids(batch, length):
    b, t = np.meshgrid(np.arange(batch), np.arange(length), indexing="ij")
    return ((b * 37 + t * 11) % 97).astype(np.int64)


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, form):
        out = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize("<" + form)
        return out[0] if len(out) == 1 else out

    def how(self):
        failed, size = self.take("BI")
        text = self.data[self.at:self.at + size].decode()
        self.at += size
        return text if failed else ""

    def tensor(self):
        dtype, rank = self.take("BB")
        shape = [self.take("q") for _ in range(rank)]
        kind = np.dtype(DTYPES[dtype])
        count = int(np.prod(shape, dtype=np.int64))
        out = np.frombuffer(self.data, kind, count, self.at).reshape(shape)
        self.at += count * kind.itemsize
        return out


def differs(ours, theirs):
    if len(ours) != len(theirs):
        return f"{len(ours)} outputs, {len(theirs)} expected"
    for i, (a, b) in enumerate(zip(ours, theirs)):
        if a.dtype != b.dtype:
            return f"output {i} is {a.dtype}, expected {b.dtype}"
        if a.shape != b.shape:
            return f"output {i} is {list(a.shape)}, expected {list(b.shape)}"
        same = (np.allclose(a, b, 1e-5, 1e-5, equal_nan=True) if a.dtype.kind == "f"
                else np.array_equal(a, b))
        if not same:
            return f"output {i} has other values"
    return ""


def check(seeds, options):
    """(seed, state, why) of each seed: equal, refused, partly (refused at some lengths), wrong."""
    outcomes = []
    folder = pathlib.Path(tempfile.mkdtemp(dir=options.work))
    drawn = []
    for seed in seeds:
        model, session = valid_model(seed)
        if model is None:
            outcomes.append((seed, "none", "no draw that runs"))
            continue
        path = folder / f"{seed}.onnx"
        path.write_bytes(model)
        drawn.append((seed, path, session))
    if not drawn:
        return outcomes
    level = str(seeds[0] // len(seeds) % 3) if options.level is None else str(options.level)
    done = subprocess.run([options.runner, level, str(options.lengths), str(options.batches)]
                          + [str(path) for _, path, _ in drawn], capture_output=True)
    if done.returncode != 0:
        return outcomes + [(seeds[0], "crash", f"{done.returncode} {done.stderr[-500:].decode()}")]
    reader = Reader(done.stdout)
    for seed, path, session in drawn:
        state, why = "equal", ""
        refused = reader.how()
        if refused:
            ours = "internal" in refused or "verifier" in refused
            outcomes.append((seed, "wrong" if ours else "refused", f"-O{level}: {refused}"))
            continue
        for batch in range(1, options.batches + 1):
            for length in range(1, options.lengths + 1):
                failed = reader.how()
                ours = [reader.tensor() for _ in range(reader.take("I"))]
                try:
                    theirs = session.run(None, {"ids": ids(batch, length)})
                except Exception:
                    continue  # nothing to compare with
                at = f"-O{level}, ids[{batch}, {length}]: "
                if failed and ("internal" in failed or not failed):
                    state, why = "wrong", at + failed
                elif failed and state == "equal":
                    state, why = "partly", at + failed
                elif not failed and state != "wrong" and (difference := differs(ours, theirs)):
                    state, why = "wrong", at + difference
        outcomes.append((seed, state, why))
        if state in ("wrong", "crash") and options.keep:
            shutil.copy(path, options.keep)
    shutil.rmtree(folder)
    return outcomes


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runner", default="size_runner")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--lengths", type=int, default=40)
    parser.add_argument("--batches", type=int, default=3)
    parser.add_argument("--level", type=int, help="-O of all; else 0, 1, 2 in turn")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--work", help="a folder for what is in between")
    parser.add_argument("--keep", help="a folder for graphs that are wrong")
    options = parser.parse_args()
    begin = time.monotonic()
    chunk = 50
    seeds = range(options.seed, options.seed + options.count)
    chunks = [list(seeds[i:i + chunk]) for i in range(0, len(seeds), chunk)]
    count, reasons, bad = collections.Counter(), collections.Counter(), 0
    with concurrent.futures.ProcessPoolExecutor(options.jobs) as pool:
        for outcomes in pool.map(check, chunks, [options] * len(chunks)):
            for seed, state, why in outcomes:
                count[state] += 1
                if state in ("refused", "partly"):
                    reasons[state + " " + why.split(": ")[-1].split(";")[0][:90]] += 1
                if state in ("wrong", "crash"):
                    bad += 1
                    print(f"seed {seed}: {state}: {why}", flush=True)
    for reason, times in reasons.most_common(12):
        print(f"{times:6} {reason}")
    print(f"{options.count} graphs from seed {options.seed}, lengths 1 to {options.lengths}, "
          f"{options.batches} batches: " + ", ".join(f"{n} {s}" for s, n in sorted(count.items()))
          + f"; {time.monotonic() - begin:.0f} s")
    few = count["equal"] < options.count // 2
    if few:
        print("too few graphs are compared for the test to mean something")
    return 1 if bad or few else 0


if __name__ == "__main__":
    sys.exit(main())
