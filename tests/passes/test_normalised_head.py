"""The normalised head: judged by the same network, built with upstream's cell and trained by MindSpore."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from boost_compile.ir.core.errors import PassError
from boost_compile.passes import NoMatchWarning
from mindspore import nn

import boost_compile as bc
from tests import boundary, native, reference
from tests.boundary import slow
from tests.compare import assert_close, assert_equal
from tests.loss_scale import spoiled, train_scaled
from tests.networks import CASES, Case, build, export, state_of
from tests.networks import loss_scale as scaling
from tests.networks import training_cells as cells
from tests.networks.heads import with_normalised_head
from tests.networks.mlp import momentum
from tests.networks.optimizers import OPTIMIZERS
from tests.passes.dense_cells import NORMALISED, Cells
from tests.passes.without_layers import run, trained
from tests.reference import LossScale

Exported = Callable[[str], Path]

ONE_STEP, THREE_STEPS = 1e-5, 1e-3
OTHER_OPTIMIZERS = [
    "sgd_decay",  # a slot of ones
    "adam_decay",  # weight decay in a sum, two slots
    "adam_weight_decay_decomposed",  # plain arithmetic
    "adagrad",  # a slot that starts from another number
    "ftrl",
    "momentum_rate_schedule",
]


def check(source: bc.Program, case: Case, pipeline: str = "normalised-head", steps: int = 3) -> bc.Program:
    """Compares every step's state with that of ``case``, the network built with upstream's cell."""
    program = bc.compile(source, pipeline)
    ours, (initial, *expected) = run(program, case, steps), trained(case, steps)
    assert_equal({name: program.state[name].initial for name in initial}, initial)
    assert_close(ours[0], expected[0], initial, ONE_STEP)
    assert_close(ours[-1], expected[-1], initial, THREE_STEPS)
    assert not np.array_equal(ours[-1][multiplier(program)], initial[multiplier(program)])
    return program


def multiplier(program: bc.Program) -> str:
    return next(name for name in program.reports[0].statistics["state added"] if name.endswith("multiplier"))


@pytest.mark.parametrize(
    ("name", "steps", "bias"),
    [
        ("mlp", 3, "keep"),
        ("lenet_bn_adam", 3, "drop"),
        ("lstm", 3, "keep"),
        ("printing", 2, "drop"),
        pytest.param("resnet18", 1, "drop", marks=pytest.mark.slow),
    ],
)
def test_trains_as_the_network_with_upstreams_cell(exported: Exported, name: str, steps: int, bias: str) -> None:
    source = bc.load(str(exported(name)))
    case = with_normalised_head(CASES[name], bias)
    program = check(source, case, f"normalised-head{{bias={bias}}}", steps)
    layer = multiplier(program).removesuffix(".multiplier")
    gone = {n for n in source.state if f"{layer}.bias" in n} if bias == "drop" else set()
    assert source.state.keys() - program.state.keys() == gone
    assert program.state[multiplier(program)].role == "weight"
    assert program.state[multiplier(program)].trainable
    assert bool(gone) == ("bias dropped" in program.reports[0].statistics)


def train_upstream(steps: int) -> tuple[list[float], dict[str, np.ndarray]]:
    """With upstream's fn_flag; names as in the file."""
    from mindspore import boost

    def wrap(network: nn.Cell, optimizer: nn.Cell) -> nn.Cell:
        converted = boost.LessBN(network, fn_flag=True)
        return nn.TrainOneStepCell(converted, momentum(converted.trainable_params()))

    step = build(replace(CELLS, wrap=wrap)).train_step
    losses = [float(step(*native.tensors(batch)).asnumpy()) for batch in CELLS.batches(steps)]
    # Upstream names what it makes `_backbone.…`, what it leaves `network._backbone.…`, and slots after them.
    names = {n: re.sub(r"(network\.)*_backbone\.", "", n) for n in state_of(step)}
    return losses, {names[n]: value for n, value in state_of(step).items()}


CELLS = replace(CASES["mlp"], name="cells", network=Cells)


def test_every_cell_as_upstream_takes_them(tmp_path: Path) -> None:
    source = bc.load(str(export(CELLS, tmp_path)))
    losses, theirs = native.isolated(train_upstream, 3)
    program = bc.compile(source, "normalised-head{layers=every-cell,bias=drop}")
    report = program.reports[0]
    assert set(report.statistics["weight"].split(", ")) == set(NORMALISED)
    assert {miss.site: miss.reason for miss in report.misses} == {
        "output.weight": "'made_last.weight' is the last one of its cell",
        "pair.first.weight": "'pair.second.weight' is the last one of its cell",
        "blocks.0.first.weight": "'blocks.0.second.weight' is the last one of its cell",
        "blocks.1.first.weight": "'blocks.1.second.weight' is the last one of its cell",
        "rest.0.weight": "'rest.1.weight' is the last one of its cell",
    }
    session = bc.Session(program, device="CPU")
    assert [float(session.step(*batch).loss) for batch in CELLS.batches(3)] == pytest.approx(losses, rel=1e-5)
    ours = session.state()
    assert ours.keys() == theirs.keys()
    assert_close(ours, theirs, {n: v.initial for n, v in program.state.items()}, THREE_STEPS)
    asked = bc.from_boost_config({"boost": {"mode": "manual", "less_bn": True}, "less_bn": {"gc_flag": False}})
    with pytest.warns(NoMatchWarning, match="the forward part has no BatchNorm"):
        configured = bc.compile(source, asked)
    assert program.state.keys() == configured.state.keys()


class Tied(nn.Cell):
    """Two layers of one weight, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.twice, self.head, self.relu = nn.CellList([nn.Dense(8, 8)]), nn.Dense(8, 4), nn.Tanh()

    def construct(self, x):
        return self.head(self.relu(self.twice[0](self.relu(self.twice[0](x)))))


def test_a_layer_that_cannot_be_normalised_stays(tmp_path: Path) -> None:
    source = bc.load(str(export(replace(CELLS, name="tied", network=Tied), tmp_path)))
    report = bc.compile(source, "normalised-head{layers=every-cell}").reports[0]
    assert report.statistics["weight"] == "head.weight"
    assert [miss.site for miss in report.misses] == ["twice.0.weight"]
    assert "cannot be normalised: " in report.misses[0].reason


@pytest.mark.parametrize("name", OTHER_OPTIMIZERS)
def test_the_multiplier_is_trained_as_the_weight_is(tmp_path: Path, name: str) -> None:
    case = replace(CASES["mlp"], name=name, optimizer=OPTIMIZERS[name])
    check(bc.load(str(export(case, tmp_path))), with_normalised_head(case))


@pytest.mark.parametrize(
    "cell", [cells.ClipGlobalNorm, cells.Average, cells.HandMomentum, *slow(cells.SkipLargeNorm, cells.GatedUpdate)]
)
def test_the_multiplier_has_its_share_in_what_serves_all_weights(tmp_path: Path, cell: Callable[..., object]) -> None:
    """A norm over all gradients, in a sum and in place; the optimizer in a function; an average of each weight."""
    case = Case("cell", cells.Loss, momentum, CASES["mlp"].batch, wrap=cell)
    check(bc.load(str(export(case, tmp_path))), with_normalised_head(case))


@pytest.mark.parametrize(
    "wrap",
    [
        scaling.as_gpu,
        *slow(scaling.as_ascend_910a, scaling.as_ascend_910b),
        scaling.dynamic(2.0**10, 2),
        *slow(scaling.dynamic(2.0**10, 2, scaling.AskedInBranch)),
    ],
    ids=["gpu", "910a", "910b", "status", "branch"],
)
def test_cells_with_a_loss_scale(tmp_path: Path, wrap: Callable[..., object]) -> None:
    case = replace(CASES["mlp"], name="scaled", wrap=wrap)
    program = bc.compile(bc.load(str(export(case, tmp_path))), "normalised-head")
    case = with_normalised_head(case)
    batches = spoiled(case.batches(4), {1: np.inf})
    expected = train_scaled(case, [[batch] for batch in batches])
    assert expected.skipped == [False, True, False, False]
    session = bc.Session(program, device="CPU")
    for batch in batches:
        session.step(*batch)
    ours = session.state()
    assert ours.keys() == expected.states[-1].keys()
    assert_close(ours, expected.states[-1], expected.initial, THREE_STEPS)


def test_an_overflow_of_the_multipliers_gradient_alone_skips_the_step(tmp_path: Path) -> None:
    """The finite check asks about the new gradient: its product overflows where no other does."""
    case = replace(CASES["mlp"], name="scaled", wrap=scaling.as_ascend_910b)
    program = bc.compile(bc.load(str(export(case, tmp_path))), "normalised-head")
    checks = [node for node in program.graphs["step"] if node.op.name == "IsFinite"]
    shapes = [node.operand(0).type.shape for node in checks]  # type: ignore[attr-defined]
    assert shapes.count((1,)) == 1
    assert len(shapes) == 5


def test_with_all_that_works_on_gradients(exported: Exported) -> None:
    case = with_normalised_head(CASES["mlp"])
    data = [list(cycle) for cycle in case.cycles(4, 2)]
    data[2][1] = reference.overflowing(data[2][1])
    source = bc.load(str(exported("mlp")))
    pipeline = "gradient-accumulation{steps=2},overflow-check,loss-scale{mode=dynamic,init=1024,window=2}"
    pipeline += ",clip-gradients{limit=0.5},normalised-head"
    ours = boundary.train(bc.compile(source, pipeline), users := bc.compile(source, "normalised-head"), data)
    expected = reference.train(
        case, data, loss_scale=LossScale(1024.0, 2), overflow="skip-cycle", clip=reference.Clip("global-norm", 0.5)
    )
    assert [seen.overflow for seen in ours] == [False, False, True, False]
    boundary.check(ours, expected, users)


@pytest.mark.slow
def test_together_with_less_bn(exported: Exported) -> None:
    from tests.networks.residual import WITHOUT

    case = with_normalised_head(replace(CASES["resnet18"], network=WITHOUT["resnet18"]))
    source = bc.load(str(exported("resnet18")))
    program = bc.compile(source, "less-bn,normalised-head")
    [ours], (initial, expected) = run(program, case, 1), trained(case, 1)
    assert_close(ours, expected, initial, ONE_STEP)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gpt_tied", "cannot be normalised"),
        ("mlp_half_compute", "not cast"),
        ("loop", "stand inside function"),
        ("penalized", "takes its weight too"),
        ("mlp_rprop", "cannot be repeated for another weight"),
        ("mlp_adafactor", "cannot be repeated for another weight"),
    ],
)
def test_what_cannot_be_rewritten_is_named(exported: Exported, name: str, message: str) -> None:
    with pytest.raises(PassError, match=message):
        bc.compile(bc.load(str(exported(name))), "normalised-head")
