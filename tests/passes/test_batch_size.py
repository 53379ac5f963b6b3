"""Another batch size: judged by the same network, exported or trained natively with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from boost_compile.ir.core.errors import PassError

import boost_compile as bc
from tests import native
from tests.boundary import slow
from tests.compare import assert_close, assert_equal
from tests.forward import Results, without_loss
from tests.networks import CASES, Case, build, export, names
from tests.passes.sizes import sizes

Exported = Callable[[str], Path]

SIZE = 6
TRAINED = ("lenet_bn", "recurrence_unrolled")
MORE = (
    "gpt_tied",
    "branch_in_loop",
    "cross_entropy_smoothed",
    "two_inputs",
    "resnet18",
    "mobilenet_v2",
    "vit",
    "lstm",
    "loop_alone",
)
REFUSED = {
    "hidden_state": "state 'hidden' (float32[4,16]) has the batch's extent",
    "keep_memory": "state 'memory' (float32[4,16]) has the batch's extent",
    "experts": "was made for 4 samples: its values differ along the batch",
    "contrastive": "was made for 4 samples: its values differ along the batch",
    "kl": "its constant operand 1 is 4 and divides a sum over the batch",
    "mlp_dynamic_batch": "is open already",
}
OWN_WAY = {
    "loop": "does not finish compiling",
    "loop_alone": "derivatives of integers, which nothing uses, keep the old size: judged by training",
}
ONE_STEP, LAST = 1e-5, 1e-3


def resized(name: str, size: int = SIZE) -> Case:
    return replace(CASES[name], batch_size=size)


@pytest.mark.parametrize("name", [*TRAINED, *slow(*MORE)])
def test_training(name: str, exported: Exported) -> None:
    program = bc.load(str(exported(name)))
    case = resized(name)
    session = bc.Session(bc.compile(program, f"batch-size{{size={SIZE}}}"))
    batches = case.batches(2)
    initial = session.state()
    for batch in batches:
        session.step(*batch)
    _, state = native.train_steps(case, batches)
    assert_close(session.state(), state, initial, LAST)


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in names() if n not in {*REFUSED, *OWN_WAY}])
def test_equals_an_export(name: str, exported: Exported, tmp_path: Path) -> None:
    """Node by node, constant by constant, bit by bit."""
    try:
        path = export(resized(name), tmp_path)
    except ValueError:
        pytest.skip("does not export with another batch")
    ours = bc.compile(bc.load(str(exported(name))), f"batch-size{{size={SIZE}}},dead-code-elimination")
    theirs = bc.compile(bc.load(str(path)), "dead-code-elimination")
    assert sizes(ours.graphs["step"]) == sizes(theirs.graphs["step"])


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str, exported: Exported) -> None:
    program = bc.load(str(exported(name)))
    with pytest.raises(PassError) as caught:
        bc.compile(program, f"batch-size{{size={SIZE}}}")
    assert REFUSED[name] in str(caught.value)


@pytest.mark.parametrize("name", ["kl", "experts"])
def test_a_captured_cell_is_exported_again(name: str) -> None:
    """Of a plain number that may be the batch size, and of numbers of samples, its file does not say enough."""
    program = bc.capture(build(CASES[name]).train_step, *CASES[name].batches(1)[0])
    session = bc.Session(bc.compile(program, f"batch-size{{size={SIZE}}}"), share=False)
    batches, initial = resized(name).batches(2), session.state()
    for batch in batches:
        session.step(*batch)
    _, reference = native.train_steps(resized(name), batches)
    assert_close(session.state(), reference, initial, ONE_STEP)


def test_open_batch(exported: Exported) -> None:
    program = bc.compile(bc.load(str(exported("mlp_adam"))), "batch-size{dynamic=true}")
    session = bc.Session(program)
    for size in (3, 5):
        session = bc.Session(program)
        batches = resized("mlp_adam", size).batches(2)
        for batch in batches:
            session.step(*batch)
        _, reference = native.train_steps(resized("mlp_adam", size), batches)
        assert_equal(session.state(), reference)


def test_open_batch_names_what_must_know_the_size(exported: Exported) -> None:
    with pytest.raises(PassError, match=r"Conv2DBackpropInput.*batch size must be known"):
        bc.compile(bc.load(str(exported("lenet_bn"))), "batch-size{dynamic=true}")


def test_with_accumulation(exported: Exported) -> None:
    """Four micro-batches of 2 instead of batches of 4."""
    program = bc.compile(bc.load(str(exported("mlp"))), "gradient-accumulation{steps=2},batch-size{size=2}")
    session = bc.Session(program)
    (cycle,) = resized("mlp", 2).cycles(1, 2)
    for batch in cycle:
        session.step(*batch)
    reference = native.train_accumulated(resized("mlp", 2), [cycle])
    ours = {n: v for n, v in session.state().items() if n in reference.states[-1]}
    assert_close(ours, reference.states[-1], native.initial_state("mlp"), ONE_STEP)


def test_there_and_back(exported: Exported) -> None:
    program = bc.load(str(exported("gpt")))
    back = bc.compile(bc.compile(program, "batch-size{size=6}"), "batch-size{size=4}")
    assert sizes(back.graphs["step"]) == sizes(program.graphs["step"])


def test_a_batch_of_one_is_refused_in_training(exported: Exported) -> None:
    one = bc.compile(bc.load(str(exported("mlp"))), "batch-size{size=1}")
    with pytest.raises(PassError, match="exported with a batch of 1"):
        bc.compile(one, "batch-size{size=4}")


# -- forward graphs: a sample's result does not depend on how many there are -----------------------------------------

MODELS = Path(__file__).parents[1] / "ir/formats/onnx/models"
MANY = 7


def check_rows(program: bc.Program, option: str) -> None:
    """Rows computed at the new size against the same rows at the old one, which is smaller."""
    (graph,) = program.graphs.values()
    (x,) = graph.inputs
    old = x.type.shape[0]
    rng = np.random.default_rng(1)
    whole = rng.integers(0, 5, (MANY, *x.type.shape[1:])) if not x.type.dtype.is_float else None
    whole = rng.standard_normal((MANY, *x.type.shape[1:])) if whole is None else whole
    whole = whole.astype(x.type.dtype.value)
    before, after = Results(program), Results(bc.compile(program, f"batch-size{{{option}}}"))
    found = after(whole)
    for start in (0, MANY - old):
        expected = before(whole[start : start + old])
        for ours, rows in zip(found, expected, strict=True):
            np.testing.assert_allclose(ours[start : start + old], rows, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "option"),
    [
        ("convolutions_traced", f"size={MANY}"),
        ("encoder_traced", "dynamic=true"),
        ("recurrent_traced", f"size={MANY}"),
        pytest.param("encoder_exported", f"size={MANY}", marks=pytest.mark.slow),
        pytest.param("convolutions_exported", f"size={MANY}", marks=pytest.mark.slow),
    ],
)
def test_models_of_onnx(name: str, option: str) -> None:
    check_rows(bc.load(MODELS / f"{name}.onnx"), option)


@pytest.mark.parametrize(
    ("name", "option"),
    [
        ("lenet_bn", "dynamic=true"),
        pytest.param("vit", f"size={MANY}", marks=pytest.mark.slow),  # it repeats its class token for each sample
        pytest.param("resnet18", f"size={MANY}", marks=pytest.mark.slow),
        pytest.param("grouped_conv", "dynamic=true", marks=pytest.mark.slow),
    ],
)
def test_forward_files(name: str, option: str, tmp_path: Path) -> None:
    check_rows(bc.load(without_loss(name, tmp_path, training=False)), option)


def test_a_forward_model_trains_with_another_batch() -> None:
    """First the batch, then the derivative: what accumulates 7 samples at once is what the model for 4 cannot take."""
    program = bc.compile(bc.load(MODELS / "encoder_traced.onnx"), f"batch-size{{size={MANY}}}")
    training = bc.differentiate(program, "sgd{learning_rate=0.1}", loss="softmax-cross-entropy{sparse=true}")
    rng = np.random.default_rng(2)
    x, label = rng.integers(0, 5, (MANY, 6)), rng.integers(0, 5, MANY).astype(np.int32)
    session = bc.Session(training)
    losses = [session.step(x, label).loss for _ in range(5)]
    assert losses[-1] < losses[0]
