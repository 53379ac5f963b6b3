"""Monitors: their numbers against arithmetic on MindSpore's gradients, and the training, which they leave alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import mindspore as ms
import numpy as np
import pytest
from boost_compile.ir.analysis.training.gradient_path import gradient_paths
from boost_compile.ir.builders.reduce import reduce_sum
from boost_compile.ir.core.errors import PassError
from boost_compile.ir.core.graph import Graph, Value
from boost_compile.ir.core.predicates import is_random
from boost_compile.ir.proof.verdict import OWN, SAME, UNPROVED
from boost_compile.ir.rewrite.effects.editing import Effects
from boost_compile.ir.rewrite.seeds import set_seeds
from boost_compile.ir.rewrite.stages import put
from boost_compile.passes.step.monitored import drop_monitors

import boost_compile as bc
from tests.boundary import slow
from tests.compare import State, assert_equal
from tests.exact_resume import check_resume
from tests.native import tensors
from tests.networks import CASES, Batch, names
from tests.reference import Clip, LossScale, of_zoo, overflowing, train

Exported = Callable[[str], Path]

ALL = "gradient-norm,weight-norm,update-ratio,non-finite,noise-scale"
FEW = ["mlp_adam", "mlp_half_weights", "branch_state"]
MANY = [n for n in names("optimizer", runs_on_cpu=True) if n not in FEW]


def norm(array: np.ndarray) -> float:
    return float(np.linalg.norm(array.astype(np.float64)))


def gradients(name: str, batch: Batch) -> State:
    """MindSpore's, of one micro-batch, from the state that the network begins with."""
    cells = of_zoo(name, frozenset())
    cells.start_anew()
    found = cells.backward(ms.Tensor(1.0, ms.float32), *tensors(batch))[1]
    return {w.name: g.asnumpy() for w, g in zip(cells.weights, found, strict=True)}


def noise_scale(parts: list[State], weights: list[str]) -> float:
    """McCandlish et al. 2018, appendix A.1: B_small is one micro-batch, B_big the cycle."""
    n = len(parts)
    small = float(np.mean([sum(norm(p[w]) ** 2 for w in weights) for p in parts]))
    large = sum(norm(np.mean([p[w].astype(np.float64) for p in parts], axis=0)) ** 2 for w in weights)
    signal = (n * large - small) / (n - 1)
    variance = (small - large) / (1 - 1 / n)
    return variance / signal if signal > 0 else math.nan


def close(found: float, wanted: float, tolerance: float = 1e-6) -> None:
    assert found == pytest.approx(wanted, rel=tolerance, abs=1e-12, nan_ok=True)


@pytest.mark.parametrize("name", ["mlp_adam", *slow("lenet_bn_adam")])
@pytest.mark.parametrize("way", [("apply", 1), ("fused", 2), *slow(("apply", 2), ("fused", 1))], ids=str)
def test_what_is_measured_is_what_numpy_computes(exported: Exported, name: str, way: tuple[str, int]) -> None:
    (split, every), scale = way, 8.0
    limit, steps = 0.05, 3
    source = bc.load(exported(name))
    pipeline = (
        f"gradient-accumulation{{steps={steps},split={split}}},loss-scale{{mode=static,init={scale}}},"
        f"clip-gradients{{limit={limit}}},overflow-check,monitor{{what=[{ALL}],every={every}}}"
    )
    session = bc.Session(bc.compile(source, pipeline))
    batches = CASES[name].batches(steps)
    cycles = [list(batches)] * every
    reference = train(name, cycles, loss_scale=LossScale(scale), overflow="skip-cycle", clip=Clip("global-norm", limit))
    for number, cycle in enumerate(cycles, 1):
        before = session.state()
        for batch in cycle:
            session.step(*batch)
        assert session.monitors().cycle == number - number % every
    found, after, native = session.monitors(), session.state(), reference.cycles[-1]
    assert native.gradients is not None
    assert native.norm is not None
    values, exact = found.values, 2e-6 if every == 1 else 2e-5  # after a cycle the weights differ by rounding
    trained = [w for w, mean in native.gradients.items() if norm(mean) > 1e-6]  # not what BatchNorm takes away again
    for w in trained:
        mean = norm(native.gradients[w])
        close(values["gradient-norm.accumulate"][w], mean, exact)
        close(values["gradient-norm.clip"][w], mean * min(1, limit / native.norm), exact)
        close(values["gradient-norm.update"][w], mean * min(1, limit / native.norm), exact)
        close(values["weight-norm"][w], norm(after[w]))
        close(values["update-ratio"][w], norm(after[w] - before[w]) / norm(before[w]) if norm(before[w]) else 0, 2e-6)
    assert set(values["non-finite"].values()) == {0}
    if every == 1:
        parts = [gradients(name, batch) for batch in batches]
        for w in trained:
            close(values["gradient-norm.raw"][w], scale * math.sqrt(np.mean([norm(p[w]) ** 2 for p in parts])), 2e-6)
            close(values["noise-scale"][w], noise_scale(parts, [w]), 1e-4)
        assert found.noise_scale is not None
        close(found.noise_scale, noise_scale(parts, list(native.gradients)))


def test_each_stage_of_the_way_of_a_gradient_has_a_norm(exported: Exported) -> None:
    """Without accumulation raw gradients are scaled; weight decay is a stage of its own."""
    name, scale = "lenet_bn_decay", 16.0
    pipeline = f"loss-scale{{mode=static,init={scale}}},clip-gradients{{by=tensor-norm,limit=0.01}},monitor"
    session = bc.Session(bc.compile(bc.load(exported(name)), pipeline))
    batch = CASES[name].batches(1)[0]
    session.step(*batch)
    values, wanted = session.monitors().values, gradients(name, batch)
    stages = ("raw", "unscale", "clip", "weight-decay", "update")
    assert [k.partition(".")[2] for k in values if k.startswith("gradient-norm.")] == list(stages)
    for w, gradient in wanted.items():
        length = norm(gradient)
        if length > 1e-6:  # what BatchNorm takes away again is rounding
            close(values["gradient-norm.raw"][w], scale * length, 1e-5)
            close(values["gradient-norm.unscale"][w], length, 1e-5)
            close(values["gradient-norm.clip"][w], min(length, 0.01), 1e-5)
    decayed = [w for w in wanted if values["gradient-norm.weight-decay"][w] != values["gradient-norm.clip"][w]]
    assert decayed
    assert values["gradient-norm.update"] == values["gradient-norm.weight-decay"]
    whole = math.sqrt(sum(norm(g) ** 2 for n, g in wanted.items() if n.startswith("fc1.")))
    close(session.monitors().norm("gradient-norm.unscale", "fc1.*"), whole, 1e-5)


PIPELINES = [
    "",
    "gradient-accumulation{steps=2},overflow-check",
    "gradient-accumulation{steps=2,split=fused,reduction=sum}",
    "gradient-accumulation{steps=2,reduction=sum},loss-scale{init=8}",
]


def check_same_training(source: bc.Program, name: str, pipeline: str, monitor: str, batches: list[Batch]) -> None:
    """Every state and result of the program without monitors, in every bit, in each step."""
    plain = bc.compile(source, pipeline) if pipeline else source
    monitored = bc.compile(plain, monitor)
    one, other = bc.Session(plain, seed=0), bc.Session(monitored, seed=0)
    for batch in batches:
        results = [s.step(*batch).outputs for s in (one, other)]
        np.testing.assert_equal(results[1], results[0])
        wanted, found = one.state(), other.state()
        assert_equal({n: found[n] for n in wanted}, wanted)


@pytest.mark.parametrize("name", [*FEW, *slow(*MANY)])
def test_training_has_the_same_bits(exported: Exported, name: str) -> None:
    source = bc.load(exported(name))
    number = [*FEW, *MANY].index(name)
    pipeline = PIPELINES[number % len(PIPELINES)]
    what = ALL if "steps" in pipeline else ALL.rpartition(",")[0]
    batches = CASES[name].batches(3 if "rate_list" in name else 5)  # the list of rates is as short
    if "overflow" in pipeline or "loss-scale" in pipeline:
        batches[2] = overflowing(batches[2], np.inf)
    check_same_training(source, name, pipeline, f"monitor{{what=[{what}],every={1 + number % 2}}}", batches)


@pytest.mark.parametrize(
    "program",
    [
        ("lenet_bn_adam", "recompute{policy=all},gradient-accumulation{steps=2}"),
        ("mlp_adam", "mixed-precision{level=O2},loss-scale{init=8},overflow-check"),
        ("mlp_adam", "gradient-freeze{type=round-robin,groups=2},gradient-accumulation{steps=2,split=fused}"),
        *slow(
            ("lenet_bn_adam", "mixed-precision{level=O2},loss-scale{init=8},overflow-check"),
            ("mlp_adam", "gradient-freeze{groups=2,total_steps=4},overflow-check"),
            ("mlp_adam", "schedule{kind=cosine,lr=0.05,total=9}"),
        ),
    ],
)
def test_other_passes_train_the_same_bits_beside_it(exported: Exported, program: tuple[str, str]) -> None:
    """Cycles that are measured and cycles that are not, in each variant."""
    name, beside = program
    batches = CASES[name].batches(8)
    check_same_training(bc.load(exported(name)), name, beside, "monitor{every=3}", batches)


@pytest.mark.parametrize("seed", [None, 5])
def test_it_draws_what_is_drawn_without_monitors(exported: Exported, seed: int | None) -> None:
    """By the session's seed, or by the file's: each compiled graph starts a generator of that anew."""
    plain = bc.load(exported("dropout"))
    for node in filter(is_random, plain.graphs["step"]):
        set_seeds(node, 7)
    one, other = (bc.Session(program, seed=seed) for program in (plain, bc.compile(plain, "monitor{every=2}")))
    for batch in CASES["dropout"].batches(4):
        assert one.step(*batch).loss == other.step(*batch).loss


def test_cycles_that_are_not_measured_run_the_graph_without_monitors(exported: Exported, tmp_path: Path) -> None:
    """But for the count of cycles, which goes on where a saved state stood."""
    plain = bc.load(exported("mlp_adam"))
    program = bc.compile(plain, "monitor{every=3}")
    program.save(tmp_path / "one.mindir")
    for form in (program, tmp_path / "one.mindir"):
        found = bc.Session(form).lowered()
        measured, idle = found.split("IR Lowered step, where nothing is measured,")
        assert "Switch" in measured
        assert "monitor.cycles" in idle
        assert not any(what in idle for what in ("Switch", "monitor.gradient-norm", "TensorMove"))

    one, other = bc.Session(program), bc.Session(program)
    batches = CASES["mlp_adam"].batches(4)
    for batch in batches[:2]:
        one.step(*batch)
    other.load(one.state())
    for session in (one, other):
        assert session.monitors().cycle == 0
        session.step(*batches[2])
        assert session.monitors().cycle == 3
        session.step(*batches[3])
        assert session.monitors().values["weight-norm"] != {}
    assert one.monitors() == other.monitors()


@pytest.mark.parametrize(
    "later",
    [
        "gradient-accumulation{steps=2}",
        "overflow-check,clip-gradients",
        "weight-average{kind=swa}",
        "freeze{match=[hidden.*]}",
    ],
)
def test_a_later_compilation_measures_anew(exported: Exported, later: str) -> None:
    source = bc.load(exported("mlp_adam"))
    monitor = "monitor{every=2}"
    together = bc.compile(source, f"{later},{monitor}")
    one_by_one = bc.compile(bc.compile(source, monitor), later)
    assert not bc.diff(together, one_by_one, computation=True)
    drop_monitors(together)
    assert not bc.diff(bc.compile(source, later), together, computation=True)


def test_a_cycle_that_is_skipped_is_measured_and_names_what_is_not_finite(exported: Exported) -> None:
    program = bc.compile(
        bc.load(exported("mlp_adam")), f"gradient-accumulation{{steps=2}},overflow-check,monitor{{what=[{ALL}]}}"
    )
    session = bc.Session(program)
    good, bad = CASES["mlp_adam"].batches(2)
    session.step(*good)
    session.step(*good)
    assert not any(session.monitors().values["non-finite"].values())
    session.step(*good)
    assert not session.step(*overflowing(bad, np.inf)).updated
    found = session.monitors()
    assert found.cycle == 2
    assert found.values["non-finite"]["hidden.weight"] == 128
    assert set(found.values["update-ratio"].values()) == {0}
    assert all(map(math.isfinite, found.values["weight-norm"].values()))
    session.step(*good)
    session.step(*good)
    assert session.monitors().cycle == 3
    assert all(math.isfinite(v) for kind in session.monitors().values.values() for v in kind.values() if kind)


@pytest.mark.parametrize("split", ["apply", *slow("fused")])
def test_saved_in_the_middle_of_a_cycle_or_as_one_file_it_measures_the_same(
    exported: Exported, tmp_path: Path, split: str
) -> None:
    pipeline = f"gradient-accumulation{{steps=3,split={split}}},monitor{{what=[{ALL}],every=2}}"
    program = bc.compile(bc.load(exported("mlp_adam")), pipeline)
    batches = CASES["mlp_adam"].batches(6)
    data = tuple(np.concatenate(arrays) for arrays in zip(*batches, strict=True))
    check_resume(program, data, tmp_path, [4])
    program.save(tmp_path / "one.mindir")
    one, other = bc.Session(program), bc.Session(tmp_path / "one.mindir")
    for batch in batches:
        one.step(*batch)
        other.step(*batch)
    assert one.monitors().cycle == 2
    assert one.monitors() == other.monitors()


def test_it_is_proved_that_nothing_takes_what_is_measured(exported: Exported, tmp_path: Path) -> None:
    source = bc.load(exported("mlp_adam"))
    alone = bc.compile(source, "monitor{every=3}")
    kinds = {v.name: v.kind for v in bc.prove(source, alone).proof.verdicts}
    assert {kinds[name] for name in source.state} == {SAME}
    assert {kinds[name] for name in alone.state if name not in source.state} == {OWN}
    whole = bc.compile(source, f"gradient-accumulation{{steps=2}},overflow-check,monitor{{what=[{ALL}]}}")
    whole.save(tmp_path / "one.mindir")
    for program in (whole, bc.load(tmp_path / "one.mindir")):
        assert bc.prove(source, program), "the checker agrees too"

    graph = alone.graphs["step"]
    path, fx = gradient_paths(graph)[0], Effects(graph)

    def taken(graph: Graph, gradient: Value) -> Value:
        measured = reduce_sum(graph, fx.load(graph.state("monitor.non-finite")))
        return graph.create("Add", [gradient, measured])

    put(path, "update", taken)
    fx.commit()
    found = bc.prove(source, alone).proof.verdicts
    assert {v.name for v in found if v.kind == UNPROVED} >= {path.weight}


def test_what_cannot_be_measured_is_named(exported: Exported, tmp_path: Path) -> None:
    source = bc.load(exported("mlp_adam"))
    basis = tmp_path / "basis.npy"
    np.save(basis, np.eye(2, sum(v.type.size for v in source.state.values() if v.role == "weight"), dtype=np.float32))

    with pytest.raises(PassError, match="they exclude each other"):
        bc.compile(source, f"monitor,dim-reduce{{basis={basis},n_components=2}}")
    with pytest.raises(PassError, match="measures nothing: compile it with 'monitor'"):
        bc.Session(source).monitors()
    frozen = bc.compile(bc.load(exported("frozen_prefix")), "monitor").reports[-1]
    assert frozen.misses
    assert all("no update to measure" in miss.reason for miss in frozen.misses)
