"""Another optimizer in an exported file: the training of the same network that MindSpore exported with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from boost_compile.ir.core.errors import OptionError, PassError
from mindspore import nn

import boost_compile as bc
from tests.compare import assert_equal
from tests.native import train_steps
from tests.networks import CASES
from tests.networks.optimizers import OPTIMIZERS

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
MANY = [
    *((f"mlp_{source}", to) for source in SPECS for to in SPECS),
    *((network, to) for network in NETWORKS[1:] for to in SPECS),
]  # fmt: skip


def replaced(source: bc.Program, to: str, **options: str) -> bc.Program:
    given = "".join(f",{name}={value}" for name, value in options.items())
    return bc.compile(source, f'replace-optimizer{{to="{to}"{given}}}')


@pytest.mark.parametrize(("name", "to"), [*FEW, *(pytest.param(*p, marks=pytest.mark.slow) for p in MANY)])
def test_it_trains_as_an_export_with_that_optimizer(exported: Exported, name: str, to: str) -> None:
    case = CASES[name]
    natively = replace(case, name=f"{name}_by_{to}", optimizer=OPTIMIZERS[to])
    batches = case.batches(3)
    wanted = train_steps(natively, batches)[1]
    session = bc.Session(replaced(bc.load(exported(name)), SPECS[to]), seed=0)
    for batch in batches:
        session.step(*batch)
    assert_equal(session.state(), wanted)


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
        ("mlp", "replace-optimizer{to=adam,match=[hiden.weight]}", "did you mean 'hidden.weight'"),
        ("mlp", "replace-optimizer{to=adm}", r"no optimizer is called 'adm'.*'adam'"),
        ("mlp", 'replace-optimizer{to="adam{betta1=0.5}"}', "has no option 'betta1'.*'beta1'"),
        ("mlp", 'replace-optimizer{to="adam{lr"}', "expected '='"),
        (
            "perturbed",
            "replace-optimizer{to=lion}",
            "reads 'network.*after the same step has written it",
        ),
        ("clip_by_norm", "replace-optimizer{to=lion}", "stands between the gradient of weight"),
        ("skip_large_norm", "replace-optimizer{to=lion}", "under a condition of its own"),
        ("lookup", "replace-optimizer{to=lion}", "part of a sparse gradient"),
        ("scaled_dynamic", "replace-optimizer{to=adam}", "the file itself decides whether it updates"),
        ("mlp_momentum_rate_schedule", "replace-optimizer{to=adam}", "computes the learning rate of weight"),
    ],
)
def test_what_cannot_be_replaced_is_named(exported: Exported, name: str, pipeline: str, said: str) -> None:
    with pytest.raises((PassError, OptionError), match=said):
        bc.compile(bc.load(exported(name)), pipeline)


def test_a_program_that_was_compiled_is_refused(exported: Exported) -> None:
    for earlier in ("gradient-accumulation{steps=2}", "schedule{total=5}"):
        source = bc.compile(bc.load(exported("mlp")), earlier)
        with pytest.raises(PassError, match="in one pipeline"):
            bc.compile(source, "replace-optimizer{to=adam}")


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
