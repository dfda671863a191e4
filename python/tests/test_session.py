"""Sessions: the exported graph, steps, arrays in and out."""
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpt2c
from conftest import DEVICE, SAMPLE


@pytest.fixture(scope="module")
def session(plan: gpt2c.Plan) -> gpt2c.Session:
    return gpt2c.Session(plan, DEVICE, threads=1)


class Foreign:
    """An array of another library: __dlpack__ alone."""

    def __init__(self, array: Any):
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


def ids_of(golden: Any) -> Any:
    return np.array([golden["prompt"]], dtype=np.int64)


def test_forward_is_the_exported_graph(session: gpt2c.Session, golden: Any) -> None:
    assert session.device == DEVICE.split(":")[0]
    assert [p.dtype for p in session.plan.inputs] == ["i64"]
    name = session.plan.inputs[0].name
    out = session.forward({name: ids_of(golden)})
    (logits,) = out.values()
    assert logits.shape == (1, len(golden["prompt"]), session.plan.vocab_size)
    expected = np.array(golden["last_logits_f64"])
    last = logits[0, -1, :len(expected)].astype(np.float64)
    assert np.linalg.norm(last - expected) / np.linalg.norm(expected) < 1e-3
    assert last.argmax() == expected.argmax() or len(expected) < session.plan.vocab_size


def test_arrays_of_any_layout_and_library(session: gpt2c.Session, golden: Any) -> None:
    ids = ids_of(golden)
    (expected,) = session.forward([ids]).values()
    spread = np.zeros((2 * ids.shape[1], 3), np.int64)
    spread[::2, 1] = ids[0]
    backwards = ids[:, ::-1].copy()
    read_only = ids.copy()
    read_only.flags.writeable = False
    for given in (ids.astype(np.int32), ids.astype(">i8"), spread[::2, 1:2].T, backwards[:, ::-1],
                  Foreign(ids), ids.tolist(), read_only):
        (got,) = session.forward([given]).values()
        assert np.array_equal(got, expected)
    (got,) = session.forward(ids).values()
    assert np.array_equal(got, expected)


def test_results_are_not_copied_and_outlive_everything(plan: gpt2c.Plan, golden: Any) -> None:
    session = gpt2c.Session(plan, DEVICE, threads=1)
    (result,) = session.forward([ids_of(golden)]).values()
    view = np.from_dlpack(result)
    assert view.ctypes.data == result.ctypes.data
    assert not result.flags.owndata
    sums = float(view.astype(np.float64).sum())
    del session, result
    assert float(view.astype(np.float64).sum()) == sums


def test_steps_give_the_golden_tokens(session: gpt2c.Session, golden: Any) -> None:
    expected = golden["greedy"]
    step = session.prefill([golden["prompt"]], logits=True)
    assert step.next.tolist() == [expected[0]] and step.next.dtype == np.int32
    assert step.logits is not None and step.logits.shape == (1, session.plan.vocab_size)
    assert int(step.logits[0].argmax()) == expected[0]
    for token, following in zip(expected[:4], expected[1:5]):
        step = session.extend([token])
        assert step.next.tolist() == [following] and step.logits is None
    assert session.decode(6).tolist() == [[t] for t in expected[5:11]]
    assert session.lengths == [len(golden["prompt"]) + 10]
    # back to the prompt, and its last token once more
    kept = len(golden["prompt"]) - 1
    step = session.prefill([golden["prompt"][-1:]], [kept])
    assert step.next.tolist() == [expected[0]]


def test_prefill_takes_arrays_and_rows_of_different_length(session: gpt2c.Session,
                                                           golden: Any) -> None:
    prompt = golden["prompt"]
    both = session.prefill([prompt, prompt[:5]])
    one = session.prefill(np.array([prompt]))
    other = session.prefill(Foreign(np.array([prompt[:5]])))
    assert both.next.tolist() == [one.next[0], other.next[0]]


def test_logits_of_every_token(session: gpt2c.Session, golden: Any) -> None:
    logits = session.logits([golden["prompt"]])
    assert logits.dtype == np.float32
    step = session.prefill([golden["prompt"]], logits=True)
    assert step.logits is not None
    assert np.allclose(logits[0, -1], step.logits[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("given, words", [
    ([np.zeros((1, 2), np.float32)], "'input_ids' is f32, it is to be i64"),
    ([np.zeros((1, 2), np.complex64)], "of a kind that the runtime does not have"),
    ([[[1]], [[2]]], "the graph has 1 inputs, 2 are given"),
    ({"ids": [[1]]}, "'input_ids' is missing; there is no 'ids'"),
    ([[[1 << 40]]], "1099511627776; the plan takes 0 to 4095"),
    ([[1, 2]], r"expected \[batch, seq\]"),
])
def test_wrong_inputs(session: gpt2c.Session, given: Any, words: str) -> None:
    assert session.plan.inputs[0].name == "input_ids"
    with pytest.raises(gpt2c.UsageError, match=words):
        session.forward(given)


def test_wrong_steps(session: gpt2c.Session) -> None:
    session.forward([[[1]]])  # ends the batch
    with pytest.raises(gpt2c.UsageError, match="a step got 1 token for 0 sequences"):
        session.extend([1])
    with pytest.raises(gpt2c.UsageError, match="decode needs a prefill before it"):
        session.decode(1)
    with pytest.raises(gpt2c.UsageError, match="put it into a list"):
        session.prefill([1, 2])
    with pytest.raises(gpt2c.UsageError, match="is no token id"):
        session.prefill([["one"]])
    with pytest.raises(gpt2c.UsageError, match="go from 0 to 4095"):
        session.prefill([[4096]])


@pytest.mark.skipif(DEVICE != "cpu", reason="ranks run on the CPU device")
def test_ranks_share_a_plan_and_its_state(tmp_path: Path, golden: Any) -> None:
    plan = gpt2c.compile(SAMPLE / "model.onnx", gpu_arch="none", precision="fp32",
                         flags=["--tensor-parallel=2,4"])
    one, two = gpt2c.Session(plan, "cpu"), gpt2c.Session(plan, "cpu", ranks=2)
    assert two.device_name.endswith(", 2 ranks")
    prompt = [golden["prompt"]]
    assert np.array_equal(one.prefill(prompt).next, two.prefill(prompt).next)
    two.save_state(tmp_path / "state")
    expected = one.decode(5)
    assert np.array_equal(two.decode(5), expected)
    four = gpt2c.Session(plan, "cpu", ranks=4)
    four.load_state(tmp_path / "state")
    assert four.lengths == [len(golden["prompt"])]
    next_token = int(one.prefill(prompt).next[0])
    assert int(four.prefill([[next_token]], past=four.lengths).next[0]) == expected[0][0]
    staged = gpt2c.Session(plan, "cpu", ranks=2, stages=2, micro_rows=2)
    assert staged.device_name.endswith(", 4 ranks in 2 stages")
    staged.prefill(prompt)
    assert np.array_equal(staged.decode(5), expected)
    with pytest.raises(gpt2c.UsageError, match="stages are from 1 to 64"):
        gpt2c.Session(plan, "cpu", stages=0)
    with pytest.raises(gpt2c.IncompatibleError, match="not for 3 ranks; it is for 1, 2, 4"):
        gpt2c.Session(plan, "cpu", ranks=3)
    with pytest.raises(gpt2c.UsageError, match="ranks is at least 1"):
        gpt2c.Session(plan, "cpu", ranks=0)
