"""bc.boost: every public name of mindspore.boost says what to write instead; and what upstream's example becomes."""

from __future__ import annotations

import inspect
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from boost_compile.passes import parse_pipeline
from mindspore import boost, nn

import boost_compile as bc
from tests.networks import CASES, export
from tests.passes.enhanced_amp import Net

CONV, DENSE = SimpleNamespace(name="conv1.weight"), SimpleNamespace(name="fc1.weight")
CALLS: dict[str, tuple[tuple[Any, ...], str]] = {
    "AutoBoost": (("O2", {"boost": {"mode": "auto"}}), "bc.from_boost_config({'boost': {'mode': 'auto'}}, level='O2')"),
    "OptimizerProcess": ((object(),), "gradient-centralization"),
    "ParameterProcess": ((), "parameter-groups{split_points=[50,100]}"),
    "BoostTrainOneStepCell": ((None, None, 1024.0), "loss-scale{mode=static,init=1024.0}"),
    "BoostTrainOneStepWithLossScaleCell": ((None, None, object()), "loss-scale{mode=dynamic},overflow-check"),
    "LessBN": ((None, True), "less-bn{select=pattern-or-inner},normalised-head{layers=every-cell,bias=drop}"),
    "GradientFreeze": (
        (10, 1, 0.5, 2000),
        "gradient-freeze{groups=10,type=interval,probability=0.5,total_steps=2000,after=repeat}",
    ),
    "FreezeOpt": (
        (None, [[CONV, DENSE], [{"params": [DENSE]}]], [0, 0, 1]),
        "gradient-freeze{train=[conv1.weight|fc1.weight,fc1.weight],strategy=[0,0,1],after=repeat}",
    ),
    "freeze_cell": (
        (False, None, None, 1.0, None, True, None, None, 4),
        "gradient-freeze,gradient-accumulation{steps=4}",
    ),
    "GradientAccumulation": ((4, None), "gradient-accumulation{steps=4}"),
    "AdaSum": ((0, 8, 2, ()), "adasum{devices_per_group=8}"),
    "DimReduce": (
        (None, None, (), None, 32, 0.55, 0.9, 0.001, 0.4, 0, 1),
        "dim-reduce{basis=pca_mat.npy,n_components=32,rho=0.55,gamma=0.9,alpha=0.001,sigma=0.4}",
    ),
    "GroupLossScaleManager": (
        (4096, [[CONV], [DENSE]]),
        "group-loss-scale{init=[4096.0],match=[conv1.weight,fc1.weight]}",
    ),
}


def pipelines(message: str) -> list[str]:
    return re.findall(r"""bc\.compile\(bc\.load\("model\.mindir"\), '(.+)'\)""", message)


def test_every_public_name_is_there() -> None:
    assert sorted(CALLS) == sorted(boost.__all__)
    for name in boost.__all__:
        cls = getattr(boost, name)
        theirs = inspect.signature(cls.__init__ if inspect.isclass(cls) else cls).parameters
        ours = inspect.signature(getattr(bc.boost, name)._instead).parameters
        assert list(ours) == [p for p in theirs if p != "self"], name


@pytest.mark.parametrize("name", sorted(CALLS))
def test_a_name_says_what_to_write_instead(name: str) -> None:
    arguments, expected = CALLS[name]
    for given in (arguments, ()):
        with pytest.raises(bc.Error) as caught:
            getattr(bc.boost, name)(*given)
        message = str(caught.value)
        assert message.startswith(f"mindspore.boost.{name} is ")
        assert expected in message or given != arguments
        said = message.partition(" here, on ")[0]
        for pipeline in pipelines(message):
            assert all(f"'{p.name}'" in said for p in parse_pipeline(pipeline)) or "is bc." in said
    with pytest.raises(bc.Error, match=f"mindspore.boost.{name} is "):
        getattr(bc.boost, name).anything_of_it(1)
    assert name in repr(getattr(bc.boost, name))


def test_every_pass_class_can_be_imported_from_passes() -> None:
    from boost_compile.passes import GradientAccumulation, LessBN
    from boost_compile.passes.framework.registry import CLASSES, REGISTRY

    assert GradientAccumulation(steps=4) == parse_pipeline("gradient-accumulation{steps=4}")[0]
    assert LessBN is REGISTRY["less-bn"]
    for name, cls in CLASSES.items():
        assert cls in bc.passes.__all__
        assert getattr(bc.passes, cls) is REGISTRY[name]
    assert set(CLASSES.values()) <= set(dir(bc.passes))
    assert set(bc.passes.__all__) <= set(dir(bc.passes))


def test_the_example_of_the_manager(tmp_path: Path) -> None:
    """The network is exported as it is, with another thing in the manager's place; a group scale changes no bit."""

    def images(rng: np.random.Generator, size: int) -> tuple[np.ndarray, ...]:
        labels = np.eye(10, dtype=np.float32)[rng.integers(0, 10, size)]
        return rng.standard_normal((size, 1, 32, 32)).astype(np.float32) * 1e-3, labels

    case = replace(
        CASES["mlp"],
        name="example",
        network=lambda: Net(bc.boost.enhanced_amp),
        loss=lambda: nn.SoftmaxCrossEntropyWithLogits(reduction="mean"),
        batch=images,
    )
    source = bc.load(str(export(case, tmp_path)))
    with pytest.raises(bc.Error, match=r"boost_compile\.boost\.enhanced_amp in its place") as caught:
        bc.boost.GroupLossScaleManager(4096, [])
    [asked] = pipelines(str(caught.value))
    assert asked == "group-loss-scale{init=[4096.0]}"
    document = {"boost": {"mode": "manual", "loss_scale_group": True},
                "loss_scale_group": {"init_loss_scale": 4096, "loss_scale_groups": ["*conv*", "*"]}}  # fmt: skip
    program = bc.compile(source, bc.from_boost_config(document))
    plain, scaled = bc.Session(source), bc.Session(program)
    for batch in case.batches(3):
        theirs, ours = plain.step(*batch), scaled.step(*batch)
        assert ours.loss == theirs.loss
        assert len(ours.loss_scales) == 2
        assert not ours.overflow
    before, after = plain.state(), scaled.state()
    assert all(np.array_equal(before[name], after[name]) for name in before)
    assert any(not np.array_equal(source.state[name].initial, after[name]) for name in before)
