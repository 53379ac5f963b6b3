"""Adapters against LoRA cells that are written natively: the same names, the same training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from boost_compile.ir.core.errors import PassError
from mindspore import nn, ops

import boost_compile as bc
from tests.boundary import slow
from tests.compare import assert_close
from tests.native import train_accumulated, train_steps
from tests.networks import CASES, Case, export
from tests.passes.native_lora import none, with_adapters

Exported = Callable[[str], Path]
SUFFIX = ".lora_A.weight"
ALPHA = 3.0
OPTIMIZERS: dict[str, Callable[[list[ms.Parameter]], nn.Cell]] = {
    "momentum": lambda p: nn.Momentum(p, 0.1, 0.9, weight_decay=1e-3),
    "sgd": lambda p: nn.SGD(p, 0.1, momentum=0.9),
    "adam": lambda p: nn.Adam(p, 0.01),
    "adam_weight_decay": lambda p: nn.AdamWeightDecay(p, 0.01, weight_decay=0.01),
    "adadelta": lambda p: nn.Adadelta(p, 0.01),
}
NETWORKS = ["mlp", "mlp_half_compute", "gpt", "gpt_tied", "lenet_bn", "vit", "two_heads", "lstm", "dropout", "branch"]
CLOSE, HALF = 1e-3, 1e-2
"""How far states may lie apart, by how far training moves them: thin products are added up in another order than those
of the native cells; the second number is for layers that compute in half precision."""


def lora(source: bc.Program, match: str = "*", options: str = "", later: str = "") -> bc.Program:
    return bc.compile(source, f"lora{{match=[{match}],rank=2,alpha={ALPHA}{options}}}{later}")


def layers_of(program: bc.Program) -> list[str]:
    found = [name for name, v in program.state.items() if name.endswith(SUFFIX) and v.role == "weight"]
    return [name.removesuffix(SUFFIX) for name in found]


def initial_of(program: bc.Program) -> dict[str, Any]:
    return {name: variable.initial for name, variable in program.state.items()}


def natively(case: Case, program: bc.Program, train: Callable[[str], bool] = none) -> Case:
    return with_adapters(case, initial_of(program), layers_of(program), ALPHA, train)


def assert_trains_as(case: Case, source: bc.Program, program: bc.Program) -> None:
    batches = case.batches(3)
    losses, wanted = train_steps(natively(case, program), batches)
    session = bc.Session(program)
    ours = [float(session.step(*batch).loss) for batch in batches]
    state = session.state()
    assert set(state) == set(wanted), "the same parameters, slots and hyperparameters"
    half = "half" in case.name
    np.testing.assert_allclose(ours, losses, rtol=1e-3 if half else 2e-5)
    assert_close(state, wanted, initial_of(program), HALF if half else CLOSE)
    assert ours[0] == float(bc.Session(source).step(*batches[0]).loss), "B is zero: the first loss has the same bits"
    start = initial_of(program)
    moved = {n for n, v in program.state.items() if v.role == "weight" and not np.array_equal(state[n], start[n])}
    matrices = [{f"{layer}.lora_{m}.weight" for layer in layers_of(program)} for m in "AB"]
    assert matrices[1] <= moved <= matrices[0] | matrices[1], "nothing else moves; A only once B is no zero any more"


@pytest.mark.parametrize("name", ["mlp_adam", "mlp_half_compute", *slow("gpt")])
def test_adapters_train_as_cells_that_are_written_natively(exported: Exported, name: str) -> None:
    source = bc.load(exported(name))
    assert_trains_as(CASES[name], source, lora(source))


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", NETWORKS)
def test_every_network_with_every_optimizer(tmp_path: Path, name: str, optimizer: str) -> None:
    case = replace(CASES[name], optimizer=OPTIMIZERS[optimizer], wrap=nn.TrainOneStepCell)
    source = bc.load(export(case, tmp_path))
    assert_trains_as(case, source, lora(source))


class Products(nn.Cell):
    """Weights in the other forms in which products are written: transposed, with more dimensions, shared."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.form = form
        self.w = ms.Parameter(ms.Tensor(np.random.randn(8, 6).astype(np.float32)), name="w")
        self.shared = nn.Dense(8, 8)
        self.linear = ms.mint.nn.Linear(8, 6)

    def construct(self, x, y):
        if self.form == "matmul":
            out = ops.matmul(x.reshape(2, -1, 8) * 1.0, self.w).reshape(-1, 6)
        elif self.form == "transposed":
            out = x @ self.w.T.T
        elif self.form == "linear":
            out = self.linear(x.reshape(2, -1, 8)).reshape(-1, 6)
        elif self.form == "stopped":
            hidden = self.shared(x)
            still = ops.stop_gradient(self.shared(0.5 * hidden))
            out = (hidden * still + self.shared(1.5 * hidden))[:, :6]
        elif self.form == "twice":  # one input, and nothing merges the products
            out = (ops.relu(self.shared(x)) * self.shared(ops.depend(x, self.w)))[:, :6]
        else:
            out = self.shared(ops.relu(self.shared(x)))[:, :6]
        return ((out - y) ** 2).mean()


def rows(rng: np.random.Generator, size: int) -> tuple[np.ndarray, ...]:
    return rng.standard_normal((size, 8)).astype(np.float32), rng.standard_normal((size, 6)).astype(np.float32)


@pytest.mark.parametrize("form", ["matmul", "shared", "stopped", "twice", *slow("transposed", "linear")])
def test_every_form_of_a_product(tmp_path: Path, form: str) -> None:
    """The gradients of A and B are those of the merged weight, W + s B A, by the chain rule. The original has those."""
    case = Case(form, lambda: Products(form), lambda p: nn.SGD(p, 1.0), rows)
    source = bc.load(export(case, tmp_path))
    weight = {"matmul": "w", "transposed": "w", "linear": "linear.weight"}.get(form, "shared.weight")
    program = lora(source, weight)
    a, b = (name for name, v in program.state.items() if v.role == "weight" and ".lora_" in name)
    rng = np.random.default_rng(3)
    start: dict[str, Any] = {n: rng.standard_normal(program.state[n].shape).astype(np.float32) / 4 for n in (a, b)}
    inputs_first = program.state[weight].shape[0] == program.state[a].shape[1] and weight == "w"
    scale = np.float32(ALPHA / 2)
    added = scale * start[b] @ start[a]
    merged = source.state[weight].initial + (added.T if inputs_first else added)
    (batch,) = case.batches(1)
    whole = bc.Session(source.with_values({weight: merged}))
    session = bc.Session(program.with_values(start))
    assert float(session.step(*batch).loss) == pytest.approx(float(whole.step(*batch).loss), rel=1e-5)
    gradient = merged - whole.state()[weight]  # SGD with a rate of one
    gradient = gradient.T if inputs_first else gradient
    after = session.state()
    np.testing.assert_allclose(start[a] - after[a], scale * start[b].T @ gradient, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(start[b] - after[b], scale * gradient @ start[a].T, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("split", ["fused", *slow("apply")])
def test_adapters_accumulate_as_native_ones(exported: Exported, split: str) -> None:
    program = lora(bc.load(exported("mlp_adam")), "*", "", f",gradient-accumulation{{steps=2,split={split}}}")
    cycles = CASES["mlp_adam"].cycles(3, 2)
    native = train_accumulated(natively(CASES["mlp_adam"], program), cycles)
    session = bc.Session(program)
    for cycle in cycles:
        for batch in cycle:
            session.step(*batch)
    state = session.state()
    wanted = native.states[-1]
    assert_close({n: state[n] for n in wanted}, wanted, initial_of(program), 1e-4, native.noise())


def test_what_is_to_be_trained_as_before_is(exported: Exported) -> None:
    """A head, and the biases: the rest of a fine-tuning."""
    program = lora(bc.load(exported("mlp_adam")), "hidden.weight", ",train=[output.*]")
    batches = CASES["mlp_adam"].batches(3)
    case = natively(CASES["mlp_adam"], program, lambda name: name.startswith("output."))
    wanted = train_steps(case, batches)[1]
    session = bc.Session(program)
    for batch in batches:
        session.step(*batch)
    assert_close(session.state(), wanted, initial_of(program), CLOSE)


LATER = [
    "gradient-accumulation{steps=2},loss-scale{init=8},overflow-check,clip-gradients",
    "weight-average{decay=0.9},effect-chain-minimization,common-subexpression-elimination",
    "mixed-precision{level=O2,loss_scale=false}",
    "recompute?,gradient-accumulation{steps=2},data-parallel",
    "gradient-accumulation{steps=2},data-parallel,shard-optimizer",
]


@pytest.mark.slow
@pytest.mark.parametrize("later", LATER)
@pytest.mark.parametrize("name", ["mlp_adam", "gpt", "lenet_bn_adam"])
def test_other_passes_keep_their_promises_behind_it(exported: Exported, name: str, later: str) -> None:
    source = bc.load(exported(name))
    found = bc.verify(source, lora(source, "*", "", f",{later}"))
    assert not [r for r in found.results if r.failed], found
    assert found.result("adapters").status == "passed"


def test_an_update_that_cannot_be_repeated_is_named(exported: Exported) -> None:
    with pytest.raises(PassError, match=r"'hidden\.weight' cannot be repeated .*slot 'exp_avg.* replace-optimizer"):
        lora(bc.load(exported("mlp_adafactor")))
    with pytest.raises(PassError, match=r"takes it, and that is no product of an input with it"):
        lora(bc.load(exported("gpt_tied")), "tokens.embedding_table")
