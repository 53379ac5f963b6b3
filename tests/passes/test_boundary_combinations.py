"""The passes around the optimizer together: every combination equals its parts composed natively, in whatever order."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

import boost_compile as bc
from tests import reference
from tests.boundary import assert_same_training, check, every_other, slow, train, train_file, train_in, train_unpacked
from tests.compare import assert_equal
from tests.networks import CASES, Batch
from tests.reference import Clip, LossScale, Run, overflowing

Exported = Callable[[str], Path]

MLP = frozenset({"hidden.weight", "output.weight"})
LENET = frozenset({"conv1.weight", "conv2.weight", "fc1.weight", "fc2.weight"})
NETWORKS = {"lenet_bn_decay": LENET, "mlp_adam_decay": MLP}

ACCUMULATION = ["1", "4-apply", "4-fused"]
OVERFLOW = ["unchecked", "skip-cycle", "skip-micro"]
SCALE = ["unscaled", "static", "dynamic"]
CLIP = ["unclipped", "clipped"]
CENTRALIZATION = ["uncentred", "centred"]
ALL = [
    combination
    for combination in itertools.product(ACCUMULATION, OVERFLOW, SCALE, CLIP, CENTRALIZATION)
    if combination[1:] != ("unchecked", "unscaled", "unclipped", "uncentred")
]


def covering(combinations: list[tuple[str, ...]]) -> set[tuple[str, ...]]:
    """Few combinations in which every pair of choices meets; greedily, so the same ones every time."""

    def pairs(combination: tuple[str, ...]) -> set[tuple[str, ...]]:
        return set(itertools.combinations(combination, 2))

    missing = set().union(*map(pairs, combinations))
    chosen: set[tuple[str, ...]] = set()
    while missing:
        best = max(combinations, key=lambda c: len(pairs(c) & missing))
        chosen.add(best)
        missing -= pairs(best)
    return chosen


FEW = covering(ALL)
CHOSEN = {"mlp_adam_decay": FEW, "lenet_bn_decay": set(sorted(FEW)[::3])}
"""What runs by default, by network."""


def pipeline(accumulation: str, overflow: str, scale: str, clip: str, centralization: str) -> list[str]:
    passes = []
    if accumulation != "1":
        steps, split = accumulation.split("-")
        passes.append(f"gradient-accumulation{{steps={steps},split={split}}}")
    if overflow != "unchecked":
        passes.append(f"overflow-check{{policy={overflow}}}")
    if scale != "unscaled":
        passes.append(f"loss-scale{{mode={scale},init=1024,factor=2,window=2}}")
    if clip == "clipped":
        passes.append("clip-gradients{by=global-norm,limit=0.05}")
    if centralization == "centred":
        passes.extend(["tag-gradient-centralization", "lower-gradient-centralization"])
    return passes


def data_for(name: str, steps: int, checked: bool) -> list[list[Batch]]:
    """Six cycles; with overflows in the second (its last micro-batch) and the fifth (its first)."""
    data = [list(cycle) for cycle in CASES[name].cycles(6, steps)]
    if checked:
        data[1][-1] = overflowing(data[1][-1])
        data[4][0] = overflowing(data[4][0])
    return data


@cache
def composed(name: str, steps: int, overflow: str, scale: str, clip: str, centralization: str) -> Run:
    """The native composition; a dynamic scale brings the check with it."""
    policy = overflow if overflow != "unchecked" else "skip-cycle" if scale == "dynamic" else None
    return reference.train(
        name,
        data_for(name, steps, policy is not None),
        overflow=policy,
        loss_scale={"unscaled": None, "static": LossScale(1024.0), "dynamic": LossScale(1024.0, 2)}[scale],
        clip=Clip("global-norm", 0.05) if clip == "clipped" else None,
        centralize=NETWORKS[name] if centralization == "centred" else (),
    )


@pytest.mark.parametrize(
    ("name", "combination"),
    [
        pytest.param(name, c, id=",".join([name, *c]), marks=[] if c in CHOSEN[name] else pytest.mark.slow)
        for name in NETWORKS
        for c in ALL
    ],
)
def test_a_combination_equals_its_native_composition(
    exported: Exported, name: str, combination: tuple[str, ...]
) -> None:
    accumulation, *choices = combination
    steps = int(accumulation[0])
    run = composed(name, steps, *choices)
    source = bc.load(str(exported(name)))
    program = bc.compile(source, ",".join(pipeline(*combination)))
    checked = any(cycle.overflow for cycle in run.cycles)
    assert checked == (choices[0] != "unchecked" or choices[1] == "dynamic")
    check(train(program, source, data_for(name, steps, checked)), run, source)


def test_few_combinations_cover_all_pairs_of_choices() -> None:
    """What runs by default is small and misses no pair."""
    assert len(FEW) <= 16
    pairs = [set(itertools.combinations(c, 2)) for c in ALL]
    assert set().union(*pairs) == set().union(*(set(itertools.combinations(c, 2)) for c in FEW))


FULL = ("4-apply", "skip-cycle", "dynamic", "clipped", "centred")
ORDERS = [(0, 1, 2, 3, 4, 5), (5, 4, 3, 2, 1, 0), (1, 0, 3, 4, 2, 5), (4, 5, 3, 1, 0, 2), (1, 5, 2, 0, 4, 3)]


@pytest.mark.parametrize("split", ["apply", "fused"])
@pytest.mark.parametrize("name", ["mlp_adam_decay", *slow("lenet_bn_decay")])
def test_the_order_of_writing_does_not_matter(exported: Exported, name: str, split: str) -> None:
    """One call of compile or one for each pass: the same training, bit for bit, and the native composition's."""
    source = bc.load(str(exported(name)))
    passes = pipeline(f"4-{split}", *FULL[1:])
    data = data_for(name, 4, True)
    first = train(bc.compile(source, ",".join(passes)), source, data)
    check(first, composed(name, 4, *FULL[1:]), source)
    for order in ORDERS[1:]:
        written = [passes[i] for i in order]
        program = bc.compile(source, ",".join(written))
        assert_same_training(train(program, source, data), first)


@pytest.mark.parametrize("split", ["apply", "fused"])
@pytest.mark.parametrize("order", [order for order in ORDERS if order.index(1) < order.index(2)])
def test_the_number_of_compile_calls_does_not_matter(exported: Exported, split: str, order: tuple[int, ...]) -> None:
    """In any order of calls, but that a dynamic scale brings the check along, so one with options comes before it."""
    source = bc.load(str(exported("mlp_adam_decay")))
    passes = pipeline(f"4-{split}", *FULL[1:])
    data = data_for("mlp_adam_decay", 4, True)
    first = train(bc.compile(source, ",".join(passes)), source, data)
    program = source
    for i in order:
        program = bc.compile(program, passes[i])
    assert_same_training(train(program, source, data), first)


@pytest.mark.parametrize(("policy", "split"), every_other(["skip-cycle", "skip-micro"], ["apply", "fused"]))
def test_short_cycles(exported: Exported, split: str, policy: str) -> None:
    """Flushed in the middle, with an overflow and without, and one of which nothing is left."""
    name = "mlp_adam_decay"
    source = bc.load(str(exported(name)))
    data = data_for(name, 4, True)
    data[4], data[5] = data[4][:2], data[5][:1]
    data += [[overflowing(batch) for batch in data[0][:3]], data[0]]
    passes = pipeline(f"4-{split}", policy, "dynamic", "clipped", "uncentred")
    scale, clip = LossScale(1024.0, 2), Clip("global-norm", 0.05)
    run = reference.train(name, data, overflow=policy, loss_scale=scale, clip=clip)
    check(train(bc.compile(source, ",".join(passes)), source, data), run, source)


@pytest.mark.parametrize("split", ["apply", *slow("fused")])
def test_a_sum_is_unscaled_too(exported: Exported, split: str) -> None:
    source = bc.load(str(exported("mlp_adam_decay")))
    data = data_for("mlp_adam_decay", 4, False)
    accumulate = f"gradient-accumulation{{steps=4,split={split},reduction=sum}}"
    plain = train(bc.compile(source, accumulate), source, data)
    for further in ("loss-scale{mode=static,init=1024}", "loss-scale{mode=dynamic,init=1024,window=2}"):
        ours = train(bc.compile(source, f"{accumulate},{further}"), source, data)
        for a, b in zip(ours, plain, strict=True):
            assert_equal(a.state, b.state)


@pytest.mark.parametrize(("name", "split"), every_other([*NETWORKS], ["apply", "fused"]))
def test_everything_at_once_in_the_file_alone(exported: Exported, tmp_path: Path, name: str, split: str) -> None:
    source = bc.load(str(exported(name)))
    program = bc.compile(source, ",".join(pipeline(f"4-{split}", *FULL[1:])))
    program.save(str(tmp_path / "whole.mindir"))
    data = data_for(name, 4, True)
    alone = train_file(tmp_path / "whole.mindir", source, data)
    assert_same_training(alone, train_unpacked(program, source, data))


ALONE = [
    ("mlp_adam", "gradient-accumulation{steps=4,split=fused},overflow-check{policy=skip-micro}", ""),
    ("lenet_bn_decay", "gradient-accumulation{steps=4},group-loss-scale{groups=3,init=[4,8192,64],window=4}", ""),
    ("sample_weights_adam", "gradient-accumulation{steps=4,reduction=weighted,weight=inputs2,split=fused}", ""),
    ("lenet_bn_decay", "gradient-accumulation{steps=2},clip-gradients{by=tensor-norm,limit=0.01}", ""),
    ("lenet_bn_decay", "gradient-accumulation{steps=2},clip-gradients{by=value,limit=0.01}", ""),
    ("scaled_dynamic", "legalize,gradient-accumulation{steps=2,split=fused}", ""),
    ("lenet_bn", 'gradient-freeze{train=["*","fc*","conv*"],strategy=[1,0,2],after=repeat}', ""),
    ("mlp", "normalised-head", "normalised-head"),
    ("residual_in_place", "less-bn", "less-bn"),
]
"""Network, pipeline, and the passes that make another network of it."""


@pytest.mark.parametrize(("name", "passes", "network"), ALONE)
def test_a_file_alone_and_a_session_that_goes_on_train_alike(
    exported: Exported, tmp_path: Path, name: str, passes: str, network: str
) -> None:
    """In plain MindSpore; and the program as it was saved, from a checkpoint, which holds whatever the passes keep."""
    source = bc.load(str(exported(name)))
    program = bc.compile(source, passes)
    users = bc.compile(source, network) if network else source
    data = data_for(name, program.micro_batches(), any(what in passes for what in ("check", "scale", "legalize")))
    program.save(str(tmp_path / "whole.mindir"))
    ours = train_unpacked(program, users, data)
    assert_same_training(train_file(tmp_path / "whole.mindir", users, data), ours)
    assert any((ours[-1].state[n] != ours[0].state[n]).any() for n in ours[0].state)
    program.save(str(tmp_path / "program.boost"))
    session, again = bc.Session(program, device="CPU"), bc.Session(tmp_path / "program.boost", device="CPU")
    train_in(session, users, data[:3])
    session.save(tmp_path / "midway.safetensors")
    again.load_state(tmp_path / "midway.safetensors")
    assert_same_training(train_in(again, users, data[3:]), train_in(session, users, data[3:]))


def of_rows(batch: Batch) -> float:
    return float(batch[2].sum())


@pytest.mark.parametrize(("policy", "split"), every_other(["skip-cycle", "skip-micro"], ["apply", "fused"]))
def test_with_a_weighted_mean(exported: Exported, split: str, policy: str) -> None:
    name = "sample_weights_adam"
    source = bc.load(str(exported(name)))
    data = [list(cycle) for cycle in CASES[name].cycles(6, 3)]
    data[1][0], data[3][2] = overflowing(data[1][0]), overflowing(data[3][2])
    data[4] = data[4][:2]  # divided by its own weights
    accumulate = f"gradient-accumulation{{steps=3,reduction=weighted,weight=inputs2,split={split}}}"
    _, *others = pipeline(f"3-{split}", policy, "dynamic", "clipped", "centred")
    run = reference.train(
        name,
        data,
        overflow=policy,
        loss_scale=LossScale(1024.0, 2),
        clip=Clip("global-norm", 0.05),
        centralize=[f"network.{weight}" for weight in MLP],
        weight=of_rows,
    )
    check(train(bc.compile(source, ",".join([*others, accumulate])), source, data), run, source)


@pytest.mark.slow
@pytest.mark.parametrize("split", ["apply", "fused"])
@pytest.mark.parametrize("name", ["gpt", "vit"])
def test_transformers(exported: Exported, name: str, split: str) -> None:
    """Scale, check and clip on networks whose Adam decays apart from the gradient."""
    source = bc.load(str(exported(name)))
    combination = (f"2-{split}", "skip-cycle", "dynamic", "clipped", "uncentred")
    data = CASES[name].cycles(6, 2)
    if name == "vit":
        data[2][0] = overflowing(data[2][0])
    scale, clip = LossScale(1024.0, 2), Clip("global-norm", 0.05)
    run = reference.train(name, data, overflow="skip-cycle", loss_scale=scale, clip=clip)
    check(train(bc.compile(source, ",".join(pipeline(*combination))), source, data), run, source)
