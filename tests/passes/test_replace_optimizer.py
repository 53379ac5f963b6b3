"""Another optimizer in an exported file: the training of the same network that MindSpore exported with it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import mindspore as ms
import numpy as np
import pytest
from boost_compile.ir.core.errors import OptionError, PassError
from mindspore import nn, ops

import boost_compile as bc
from tests.compare import assert_equal
from tests.loss_scale import spoiled, train_scaled
from tests.native import train_steps
from tests.networks import CASES, Case, export
from tests.networks.optimizers import OPTIMIZERS
from tests.networks.training_cells import Functional

Exported = Callable[[str], Path]

SPECS = {
    "sgd_decay": "sgd{lr=0.1,momentum=0.9,weight_decay=0.001}",
    "momentum_decay": "momentum{lr=0.1,momentum=0.9,weight_decay=0.001}",
    "nesterov": "momentum{lr=0.1,momentum=0.9,use_nesterov=true}",
    "adam": "adam{lr=0.01}",
    "amsgrad": "adam{lr=0.01,use_amsgrad=true}",
    "lazy_adam": "lazy-adam{lr=0.01}",
    "adam_weight_decay": "adam-weight-decay{lr=0.01,weight_decay=0.01}",
    "rmsprop_centered_decay": "rmsprop{lr=0.01,centered=true,weight_decay=0.001}",
    "adagrad": "adagrad{lr=0.01}",
    "ftrl": "ftrl{lr=0.01}",
    "proximal_adagrad": "proximal-adagrad{lr=0.01}",
    "adafactor": "adafactor",
    "adamax": "adamax{lr=0.01}",
    "adadelta": "adadelta{lr=0.01}",
    "asgd": "asgd{lr=0.01}",
    "rprop": "rprop{lr=0.01}",
}
"""By the name that the zoo gives an optimizer: how it is asked for."""
NETWORKS = ["mlp", "lenet_bn", "gpt_sgd", "lstm", "resnet18", "shared_weights"]
FEW = [("mlp_adam", "momentum_decay"), ("mlp_momentum_groups", "adam"), ("mlp_adafactor", "sgd_decay")]
SCALED = [
    ("scaled_dynamic", "adam"), ("scaled_dynamic", "asgd"), ("scaled_dynamic", "adam_weight_decay"),
    ("scaled_fixed", "adam"), ("scaled_tensor", "momentum_decay"), ("scaled_tensor_of_one", "adagrad"),
    ("scaled_gpu", "sgd_decay"), ("scaled_910a", "lazy_adam"), ("scaled_910b", "rprop"),
    ("scaled_allocated", "nesterov"), ("scaled_partly_awaited", "adamax"), ("scaled_lenet_adam", "momentum_decay"),
    ("scaled_branch", "adam"), ("scaled_lstm", "momentum_decay"), ("scaled_shared_weights", "adafactor"),
    ("scaled_two_inputs", "ftrl"), ("scaled_half_compute", "momentum_decay"), ("scaled_gpt", "lazy_adam"),
]  # fmt: skip


def replaced(source: bc.Program, to: str, **options: str) -> bc.Program:
    given = "".join(f",{name}={value}" for name, value in options.items())
    return bc.compile(source, f'replace-optimizer{{to="{to}"{given}}}')


@pytest.mark.parametrize(("name", "to"), FEW)
def test_it_trains_as_an_export_with_that_optimizer(exported: Exported, name: str, to: str) -> None:
    assert_trains_as_an_export(CASES[name], bc.load(exported(name)), to)


@pytest.mark.slow
@pytest.mark.parametrize("to", SPECS)
@pytest.mark.parametrize("source", SPECS)
@pytest.mark.parametrize("network", NETWORKS)
def test_every_optimizer_in_the_place_of_every_other(network: str, source: str, to: str) -> None:
    assert_trains_as_an_export(CASES[network], exported_by(network, source), to)


@lru_cache(maxsize=1)
def exported_by(network: str, source: str) -> bc.Program:
    with tempfile.TemporaryDirectory() as folder:
        return bc.load(export(replace(CASES[network], optimizer=OPTIMIZERS[source]), Path(folder)))


@lru_cache(maxsize=len(SPECS))
def natively_trained(network: str, to: str) -> dict[str, np.ndarray]:
    case = CASES[network]
    return train_steps(replace(case, name=f"{network}_by_{to}", optimizer=OPTIMIZERS[to]), case.batches(3))[1]


def assert_trains_as_an_export(case: Case, source: bc.Program, to: str) -> None:
    session = bc.Session(replaced(source, SPECS[to]), seed=0)
    for batch in case.batches(3):
        session.step(*batch)
    assert_equal(session.state(), natively_trained(case.name, to))


@pytest.mark.parametrize(
    "passes",
    [
        "gradient-accumulation{steps=2},loss-scale{init=8},clip-gradients{limit=0.1},recompute?",
        *(
            pytest.param(p, marks=pytest.mark.slow)
            for p in (
                "gradient-accumulation{steps=2,split=fused},overflow-check",
                "gradient-accumulation{steps=2},data-parallel,shard-optimizer",
                "schedule{kind=linear,total=3},parameter-groups{match=[*.bias],lr_factor=0.5}",
                "gradient-freeze{groups=2,type=interval},weight-average",
                "mixed-precision{loss_scale=false}",
            )
        ),
    ],
)
def test_other_passes_find_what_they_find_in_an_export(exported: Exported, passes: str) -> None:
    ours = bc.compile(bc.load(exported("mlp_adam")), f'{passes},replace-optimizer{{to="{SPECS["momentum_decay"]}"}}')
    native = bc.compile(bc.load(exported("mlp_momentum_decay")), passes)
    one, other = bc.Session(ours, seed=0), bc.Session(native, seed=0)
    for batch in CASES["mlp"].batches(4):
        one.step(*batch)
        other.step(*batch)
    assert_equal(one.state(), other.state())


class OwnWrites(Functional):
    """Bounds its weights behind the update, and copies them into a network that lags behind, which the loss takes."""

    def __init__(self, network: nn.Cell, optimizer: nn.Cell) -> None:
        super().__init__(network, optimizer)
        self.target = self.weights.clone("target", "same")
        self.gradients = ms.value_and_grad(self.forward, None, self.weights)

    def forward(self, x, labels):
        return self.network(x, labels) * (1 + ops.square(self.target[1]).mean())

    def construct(self, x, labels):
        loss, gradients = self.gradients(x, labels)
        loss = ops.depend(loss, self.optimizer(gradients))
        for weight in self.weights:
            loss = ops.depend(loss, ops.assign(weight, ops.clip_by_value(ops.depend(weight, loss), -0.2, 0.2)))
        for weight, target in zip(self.weights, self.target):  # noqa: B905 (graph mode knows no strict)
            loss = ops.depend(loss, ops.assign(target, 0.5 * target + 0.5 * ops.depend(weight, loss)))
        return loss


def test_what_the_cell_does_to_its_weights_stays(tmp_path: Path) -> None:
    case = replace(CASES["mlp"], name="own_writes", wrap=OwnWrites, optimizer=OPTIMIZERS["adam"])
    original = bc.load(export(case, tmp_path))
    program = replaced(original, SPECS["momentum_decay"])
    assert bc.verify(original, program).failures == (), "boost-verify does not compare updates of such a cell"
    session = bc.Session(program, seed=0)
    for batch in case.batches(3):
        session.step(*batch)
    native = replace(case, optimizer=OPTIMIZERS["momentum_decay"])
    assert_equal(session.state(), train_steps(native, case.batches(3))[1])


@pytest.mark.parametrize(
    ("name", "to", "steps"),
    [
        ("scaled_allocated", "adam", 1),
        *(pytest.param(*p, k, marks=pytest.mark.slow) for p in SCALED for k in (1, 2)),
    ],
)
def test_behind_the_check_of_the_cell_it_trains_as_an_export(
    exported: Exported, name: str, to: str, steps: int
) -> None:
    """Cells that skip the update by themselves, in all their forms, with and without accumulation."""
    case = replace(CASES[name], name=f"{name}_by_{to}", optimizer=OPTIMIZERS[to])
    batches = case.batches(6 * steps)
    if batches[0][0].dtype == np.float32:
        batches = spoiled(batches, {2 * steps: np.inf, 4 * steps: 1e38})
    cycles = [batches[i : i + steps] for i in range(0, len(batches), steps)]
    expected = train_scaled(case, cycles)
    assert 0 < sum(expected.skipped) < 5, "the test must see both"
    accumulation = f"gradient-accumulation{{steps={steps}}}," if steps > 1 else ""
    program = bc.compile(bc.load(exported(name)), f'{accumulation}replace-optimizer{{to="{SPECS[to]}"}}')
    session = bc.Session(program, seed=0, device="CPU")
    for i, cycle in enumerate(cycles):
        result = [session.step(*batch) for batch in cycle][-1]
        assert (result.overflow, result.loss_scale) == (expected.skipped[i], expected.scales[i]), f"cycle {i}"
        state = session.state()
        own = {n for n in state if program.state[n].role in ("accumulator", "counter", "carried")}
        wanted = {n: v for n, v in expected.states[i].items() if n in state}
        assert set(state) == set(wanted) | own
        assert_equal({n: state[n] for n in wanted}, wanted)


def test_behind_the_check_of_the_cell_a_skipped_update_leaves_other_optimizers_alone(exported: Exported) -> None:
    batches = spoiled(CASES["scaled_dynamic"].batches(3), {1: np.inf})
    program = replaced(bc.load(exported("scaled_dynamic")), "lion{lr=0.01}")
    kept = [n for n, v in program.state.items() if v.role in ("weight", "slot") or n == "global_step"]
    session = bc.Session(program, device="CPU")
    states = []
    for batch in batches:
        session.step(*batch)
        states.append(session.state())
    for n in kept:
        assert np.array_equal(states[0][n], states[1][n]), n
        assert not np.array_equal(states[1][n], states[2][n]), n
    assert states[1]["scale_sense"] == states[0]["scale_sense"] / 2


def test_several_uses_make_groups(exported: Exported, tmp_path: Path) -> None:
    """After one step from the same start, each group stands where its optimizer takes the whole network."""
    source = bc.load(exported("mlp_momentum_decay"))
    both = bc.compile(
        source,
        'replace-optimizer{to="adam{lr=0.01}",match=[hidden.*]},replace-optimizer{to="lazy-adam{lr=0.02}",match=*.bias}',
    )
    both.save(str(tmp_path / "groups.mindir"))
    batch = CASES["mlp"].batches(1)[0]
    session = bc.Session(bc.load(tmp_path / "groups.mindir"))
    session.step(*batch)
    found = session.state()

    def alone(optimizer: Callable[[list], nn.Cell]) -> dict[str, np.ndarray]:
        return train_steps(replace(CASES["mlp"], name="mlp_alone", optimizer=optimizer), [batch])[1]

    for name, optimizer in (
        ("hidden.weight", lambda p: nn.Adam(p, 0.01)),
        ("hidden.bias", lambda p: nn.LazyAdam(p, 0.02)),
        ("output.bias", lambda p: nn.LazyAdam(p, 0.02)),
        ("output.weight", OPTIMIZERS["momentum_decay"]),
    ):
        assert_equal({name: found[name]}, {name: alone(optimizer)[name]})
    assert "moments.hidden.weight" not in both.state
    assert {"moments.output.weight", "optimizer2.moment1.hidden.weight", "optimizer3.learning_rate"} <= set(both.state)


@pytest.mark.parametrize(("to", "largest"), [("adam", 0.1), ("adam{lr=0.05}", 0.05)])
def test_a_rate_that_changes_goes_on_changing(exported: Exported, to: str, largest: float) -> None:
    case = CASES["mlp_momentum_rate_list"]
    rates = [largest * (rate / 0.1) for rate in nn.exponential_decay_lr(0.1, 0.9, 10, 2, 1)]
    batches = case.batches(5)
    natively = replace(case, name="mlp_adam_listed", optimizer=lambda p: nn.Adam(p, rates))
    wanted = {n: v for n, v in train_steps(natively, batches)[1].items() if n != "learning_rate"}
    session = bc.Session(replaced(bc.load(exported("mlp_momentum_rate_list")), to))
    for batch in batches:
        session.step(*batch)
    ours = session.state()
    for name, value in wanted.items():
        np.testing.assert_allclose(ours[name], value, rtol=1e-6, atol=1e-8, err_msg=name)
    constant = replaced(bc.load(exported("mlp_momentum_rate_list")), to, keep_schedule="false")
    assert "schedule.rates" not in constant.state


@pytest.mark.parametrize(
    ("name", "pipeline", "said"),
    [
        ("mlp", 'replace-optimizer{to="adam{betta1=0.5}"}', "has no option 'betta1'.*'beta1'"),
        ("skip_large_norm", "replace-optimizer{to=lion}", "under a condition of its own"),
        ("lookup", "replace-optimizer{to=lion}", "has a sparse gradient"),
        ("scaled_asked_in_branch", "replace-optimizer{to=adam}", "under a condition of its own"),
        ("mlp_momentum_rate_schedule", "replace-optimizer{to=adam}", "computes the learning rate of weight"),
    ],
)
def test_what_cannot_be_replaced_is_named(exported: Exported, name: str, pipeline: str, said: str) -> None:
    with pytest.raises((PassError, OptionError), match=said):
        bc.compile(bc.load(exported(name)), pipeline)


def test_what_the_cell_keeps_beside_its_optimizer_stays(exported: Exported) -> None:
    """An average of the weights that the training cell itself moves after each update."""
    source = bc.load(exported("weight_average"))
    one, other = bc.Session(source, seed=0), bc.Session(replaced(source, "momentum{momentum=0.9}"), seed=0)
    for batch in CASES["weight_average"].batches(3):
        one.step(*batch)
        other.step(*batch)
    averages = [n for n in source.state if n.startswith("average.")]
    assert averages
    assert_equal(other.state(), one.state())


def test_the_report_says_what_went(exported: Exported) -> None:
    report = replaced(bc.load(exported("mlp_momentum_decay")), "adam").reports[-1]
    assert report.matched == report.changed == 4
    assert report.statistics["state removed"] == (
        "moments.hidden.bias, moments.hidden.weight, moments.output.bias, moments.output.weight, momentum"
    )
    assert {miss.reason for miss in report.misses} == {"its weight-decay was part of the optimizer, which is replaced"}
