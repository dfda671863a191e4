"""What a graph computes, by ONNX Runtime without optimisations, and what rounding does to it."""

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper

onnxruntime.set_default_logger_severity(4)

STEPS = 12  # new tokens of each prompt
ROUNDING = 3e-7  # relative change of every weight that stands for rounding of another order of sums
HALF_ROUNDING = 2.0**-11  # the same for half precision: half a unit
TYPES = {
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(bool)": np.bool_,
    "tensor(double)": np.float64,
}


class Invalid(Exception):
    """ONNX Runtime refuses the graph, or rounding decides what it computes: nothing can be asked of
    the compiler."""


def session(proto):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    try:
        return onnxruntime.InferenceSession(
            proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
    except Exception as e:
        raise Invalid(str(e)) from e


def perturbed(proto, rng, size):
    """The graph with every weight of more than one element moved by up to `size` of itself."""
    moved = onnx.ModelProto()
    moved.CopyFrom(proto)
    for weight in moved.graph.initializer:
        if weight.data_type not in (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16):
            continue
        value = numpy_helper.to_array(weight)
        with np.errstate(over="ignore", invalid="ignore"):
            other = (value.astype(np.float64) * (1 + rng.uniform(-size, size, value.shape))).astype(
                value.dtype
            )
        if value.size > 1:
            weight.CopyFrom(numpy_helper.from_array(other, weight.name))
    return moved


def distance(got, expected):
    """norm(got - expected) / norm(expected); infinite where one has NaN or infinity and the other
    has not."""
    if got.shape != expected.shape:
        return np.inf
    got, expected = got.astype(np.float64), expected.astype(np.float64)
    same = (got == expected) | (np.isnan(got) & np.isnan(expected))
    with np.errstate(invalid="ignore"):
        difference = np.where(same, 0, got - expected)
    if not np.isfinite(difference).all():
        return np.inf
    norm = np.linalg.norm(expected[np.isfinite(expected)])
    return np.linalg.norm(difference) / (norm if norm > 0 else 1)


def moved_by(session, feeds, values):
    """The largest distance of an output of floating point from `values`, all of them by name."""
    try:
        moved = session.run(list(values), feeds)
    except Exception as e:
        raise Invalid(str(e)) from e
    return max(
        [distance(m, v) for m, v in zip(moved, values.values()) if m.dtype.kind == "f"], default=0.0
    )


class Oracle:
    """Runs one model. `noise` is the largest distance that a change of the weights by `rounding`
    of themselves makes."""

    def __init__(self, model, rounding=ROUNDING):
        self.model, self.session = model, session(model.proto)
        self.inputs, self.outputs = (
            self.session.get_inputs(),
            [o.name for o in self.session.get_outputs()],
        )
        self.ids = next(n for n, role in model.roles.items() if role == "ids")
        self.others = [
            session(perturbed(model.proto, np.random.default_rng(k), rounding)) for k in range(2)
        ]
        self.noise = 0.0

    def past_shape(self, given, batch, past):
        """[batch, heads, past, dim], with a 2 in front where keys and values are one."""
        shape = list(given.shape)
        shape[-4], shape[-2] = batch, past
        return shape

    def feeds(self, ids, past=0, mask=None, positions=None, pasts=None, rng=None):
        """`ids` [batch, seq]. What is not given is what generation gives: ones, 0, 1, 2 .., types
        of 0."""
        batch, seq = ids.shape
        made = {}
        for given in self.inputs:
            role, dtype = self.model.roles[given.name], TYPES[given.type]
            if role == "ids":
                value = ids
            elif role == "mask":
                value = np.ones((batch, past + seq)) if mask is None else mask
            elif role == "positions":
                value = (
                    np.tile(np.arange(past, past + seq), (batch, 1))
                    if positions is None
                    else positions
                )
            elif role == "types":
                value = np.zeros((batch, seq))
            elif pasts is not None:
                value = pasts[given.name]
            else:
                value = np.zeros(self.past_shape(given, batch, past))
                value = value if rng is None else rng.normal(0, 1, value.shape)
            made[given.name] = np.ascontiguousarray(value, dtype)
        return made

    def run(self, feeds):
        try:
            return dict(zip(self.outputs, self.session.run(None, feeds)))
        except Exception as e:
            raise Invalid(str(e)) from e

    def expected(self, feeds):
        """All outputs. Takes what rounding does to them into `noise`."""
        values = self.run(feeds)
        self.noise = max([self.noise, *(moved_by(s, feeds, values) for s in self.others)])
        return values

    # -- Generation

    def row(self, logits):
        """The logits of the last token: of [1, t, V], [1, 1, V] or [1, V]."""
        row = logits.reshape(-1, logits.shape[-1])[-1].astype(np.float64)
        if self.model.probabilities:
            with np.errstate(divide="ignore"):
                return np.log(row)
        return row

    def rows(self, prompt, tokens, whole=False):
        """The logits that each of `tokens` is chosen by, behind prompt, as a caller of the graph
        would get them: with past inputs step by step, unless `whole`, else from all tokens so far.
        """
        if whole or "past" not in self.model.roles.values():
            for n in range(len(tokens)):
                ids = np.array([[*prompt, *tokens[:n]]])
                yield self.row(self.run(self.feeds(ids))[self.model.logits])
            return
        given, past, pasts = np.array([prompt]), 0, None
        names = [n for n, role in self.model.roles.items() if role == "past"]
        present = self.presents()
        for token in tokens:
            out = self.run(self.feeds(given, past, pasts=pasts))
            yield self.row(out[self.model.logits])
            past += given.shape[1]
            pasts = {n: out[p] for n, p in zip(names, present)}
            given = np.array([[token]])

    def presents(self):
        """The outputs that the past inputs take next, by their names."""
        return [
            n.replace("past_key_values", "present").replace("past_", "present_")
            for n, role in self.model.roles.items()
            if role == "past"
        ]

    def movement(self, prompt, tokens, row, whole):
        """How far rounding moves `row`, the logits that the last of `tokens` is chosen by."""
        own, most = self.session, 0.0
        try:
            for self.session in self.others:
                *_, moved = self.rows(prompt, tokens, whole)
                most = max(most, np.abs(moved - row).max())
        finally:
            self.session = own
        return most

    def wrong_answer(self, prompt, answer, tolerance, whole=False):
        """Why an answer of gpt2c-run --output=json --logprobs=N is not greedy, or differs in the
        probability of what it lists; None where it does not."""
        tokens = answer["ids"]
        # An answer may end early where the graph cannot go on, if it says so.
        if len(tokens) != STEPS and answer.get("finish_reason") != "context":
            return f"{len(tokens)} tokens instead of {STEPS}"
        for n, row in enumerate(self.rows(prompt, tokens, whole)):
            if not np.isfinite(row).all():
                return None  # what the largest of NaN is, nothing defines
            best, limit = row.max(), tolerance * max(1.0, np.abs(row).max())
            total = best + np.log(np.exp(row - best).sum())
            off = [abs(row[o["id"]] - total - o["logprob"]) for o in answer["logprobs"][n]["top"]]
            # A norm of next to nothing makes much of rounding, and only here.
            if not max(*off, best - row[tokens[n]]) <= limit:
                limit = max(limit, 40 * self.movement(prompt, tokens[: n + 1], row, whole))
            if best - row[tokens[n]] > limit:
                return f"token {n} is {tokens[n]}, {best - row[tokens[n]]:.3g} below {row.argmax()}"
            for one, far in zip(answer["logprobs"][n]["top"], off):
                if not far <= limit:
                    return f"token {n}: log probability of {one['id']} is {far:.3g} off"
        return None
