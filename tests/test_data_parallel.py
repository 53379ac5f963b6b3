"""Data parallelism on real ranks: as one process that has all the data, and the same bits on every rank.

The judge is native MindSpore: plain training on the concatenated batch, the composed reference (tests/reference.py) on
the micro-batches of all ranks, and MindSpore's own data-parallel mode.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import mindspore as ms
import numpy as np
import pytest
from boost_compile.ir.rewrite.ranks.collectives import cycle_traffic

import boost_compile as bc
from tests import native, reference
from tests.boundary import FIRST, LAST
from tests.compare import assert_close, assert_equal
from tests.conftest import export_once, zoo_folder
from tests.data_parallel_job import EXACT, NATIVE, Run, Values, write
from tests.loss_scale import train_scaled
from tests.networks import CASES, state_of
from tests.ranks import run_ranks
from tests.reference import Clip, LossScale

EQUAL = [(case, micro) for case in ("mlp", "mlp_adam_weight_decay") for micro in (1, 3)]
OWN_CLIP = "clip-gradients{limit=0.05,each_rank=true,report_norm=true}"
SCALE = "loss-scale{init=1024,window=2}"
GROUPS = "group-loss-scale{groups=2,init=[64,256],window=2}"
LATER = ((1, 1, 2), (2, 1, 0))
"""Overflows on the second rank alone, in two cycles."""
DROPPED = ((1, 1, 0), (2, 1, 0), (2, 1, 1), (2, 1, 2), *((3, rank, micro) for rank in (0, 1) for micro in (0, 1, 2)))
"""One micro-batch, all of one rank's, all of all ranks'."""

TWO = [
    (Run("tied", "gpt_tied_sgd", "", micro=3), "gradient-accumulation{steps=3,split=fused},data-parallel"),
    (Run("clipped", "mlp_momentum_decay", "", micro=3), "clip-gradients{limit=0.05,report_norm=true},data-parallel"),
    (Run("own clip", "mlp_momentum_decay", "", micro=3), f"{OWN_CLIP},loss-scale{{mode=static,init=64}},data-parallel"),
    (Run("weighted", "token_cross_entropy_masked", "", micro=3), "data-parallel"),
    (Run("short", "mlp", "", micro=3, short=1), "data-parallel"),
    (Run("skip-cycle", "mlp_adam", "", 5, 3, LATER), f"overflow-check,{SCALE},data-parallel"),
    (Run("skip-micro", "mlp_adam", "", 6, 3, DROPPED), f"overflow-check{{policy=skip-micro}},{SCALE},data-parallel"),
    (Run("groups", "mlp_adam", "", 5, 3, LATER), f"{GROUPS},data-parallel"),
    (Run("frozen", "mlp", "", cycles=6), "gradient-freeze{groups=2,total_steps=6},data-parallel"),
    (Run("saved", "lenet_bn", "", micro=2), "data-parallel"),
]
ACCUMULATED = {"weighted": "gradient-accumulation{steps=3,reduction=weighted,weight=inputs2}"}


def compiled(run: Run, passes: str) -> bc.Program:
    if run.micro > 1 and "gradient-accumulation" not in passes:
        passes = f"{ACCUMULATED.get(run.key, f'gradient-accumulation{{steps={run.micro}}}')},{passes}"
    return bc.compile(bc.load(str(export_once(run.case, zoo_folder()))), passes)


def described(ranks: int) -> list[tuple[Run, str]]:
    equal = [(Run(f"{case} {micro}", case, "", micro=micro), "data-parallel") for case, micro in EQUAL]
    # The second one is traced.
    equal[1] = (equal[1][0], "data-parallel{fusion=0}")
    return equal + (TWO if ranks == 2 else [])


@functools.cache
def job(ranks: int) -> list[Values]:
    """What the ranks of the one job of this size reported."""
    with tempfile.TemporaryDirectory(prefix="data-parallel-") as name:
        folder = Path(name)
        runs = []
        for i, (run, passes) in enumerate(described(ranks)):
            path = folder / f"{i}.boost"
            compiled(run, passes).save(str(path))
            runs.append(Run(**{**run.__dict__, "program": str(path)}))
        write(runs, folder / "runs.json")
        compiled(Run("dropout", "dropout", ""), "data-parallel").save(str(folder / "dropout.boost"))
        compiled(*described(ranks)[1]).save(str(folder / "whole.mindir"))
        how = ["further", "initialised-by-user"] if ranks == 2 else []
        return run_ranks("tests.data_parallel_job", ranks, str(folder), *how)


def part(values: Mapping[str, np.ndarray], prefix: str) -> Values:
    return {name.removeprefix(prefix): value for name, value in values.items() if name.startswith(prefix)}


def run_of(key: str, ranks: int = 2) -> Run:
    return next(run for run, _ in described(ranks) if run.key == key)


def users(run: Run, values: Mapping[str, np.ndarray], cycle: int) -> Values:
    """The state that the file had, on the first rank."""
    known = bc.load(str(export_once(run.case, zoo_folder()))).state
    return {name: v for name, v in part(values, f"{run.key}/{cycle}/state/").items() if name in known}


def check(run: Run, expected: reference.Run) -> None:
    """Decisions and states of all cycles, on both ranks."""
    first, second = job(2)
    update = next(i for i, cycle in enumerate(expected.cycles) if not cycle.skipped)
    noise = expected.noise()
    for c, cycle in enumerate(expected.cycles):
        for values in (first, second):
            told = part(values, f"{run.key}/{c}/output/")
            assert values[f"{run.key}/{c}/updated"] == (not cycle.skipped), f"cycle {c}"
            if "overflow" in told:
                assert told["overflow"] == cycle.overflow, f"cycle {c}"
            if "loss_scale" in told:
                assert told["loss_scale"] == cycle.scale, f"cycle {c}"
            if "gradient_norm" in told:
                np.testing.assert_allclose(told["gradient_norm"], cycle.norm, rtol=LAST)
        if cycle.skipped:
            assert_equal(users(run, first, c), users(run, first, c - 1))
    for c, tolerance in ((update, FIRST), (len(expected.cycles) - 1, LAST)):
        assert_close(users(run, first, c), expected.cycles[c].state, expected.initial, tolerance, noise)


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("case", "micro"), EQUAL)
def test_ranks_equal_one_process_with_the_whole_batch(case: str, micro: int, ranks: int) -> None:
    run = run_of(f"{case} {micro}", ranks)
    batches = run.concatenated(ranks)
    initial = native.initial_state(case)
    for cycles in (1, run.cycles):
        _, expected = native.train_steps(case, batches[:cycles])
        assert_close(users(run, job(ranks)[0], cycles - 1), expected, initial, FIRST)


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_every_rank_has_the_same_bits(ranks: int) -> None:
    first, *others = job(ranks)
    for run, passes in described(ranks):
        roles = {name: variable.role for name, variable in compiled(run, passes).state.items()}
        for c in range(run.cycles):
            mine = part(first, f"{run.key}/{c}/state/")
            same = {n for n in mine if roles[n] not in ("statistic", "carried")}
            for other in others:
                theirs = part(other, f"{run.key}/{c}/state/")
                assert_equal({n: theirs[n] for n in same}, {n: mine[n] for n in same})


@pytest.mark.parametrize(
    ("key", "how"),
    [
        ("tied", {}),
        ("clipped", {"clip": Clip("global-norm", 0.05)}),
        ("weighted", {"weight": lambda batch: float(batch[2].sum())}),
        ("short", {}),
        ("skip-cycle", {"overflow": "skip-cycle", "loss_scale": LossScale(1024.0, 2)}),
        ("skip-micro", {"overflow": "skip-micro", "loss_scale": LossScale(1024.0, 2)}),
    ],
)
def test_ranks_equal_accumulation_over_all_their_micro_batches(key: str, how: dict) -> None:
    run = run_of(key)
    check(run, reference.train(run.case, run.together(2), **how))


def test_each_rank_clips_its_own_before_the_sum() -> None:
    """As MindSpore's tutorial does it: the gradients of a rank, clip_by_global_norm, the mean over ranks, the
    optimizer."""
    run = run_of("own clip")
    cells = reference.Cells(CASES[run.case], frozenset())
    cells.start_anew()
    clip = Clip("global-norm", 0.05)
    for c, cycle in enumerate(run.batches(2)):
        clipped, norms = [], []
        for of_rank in cycle:
            taken = [cells.backward(ms.Tensor(1.0, ms.float32), *native.tensors(batch))[1] for batch in of_rank]
            own = [
                np.mean([g.asnumpy() for g in parts], axis=0, dtype=np.float32) for parts in zip(*taken, strict=True)
            ]
            norms.append(np.sqrt(sum(np.square(g, dtype=np.float64).sum() for g in own)))
            clipped.append(reference.clipped(own, clip))
        assert min(norms) > clip.limit
        assert not np.isclose(*norms, rtol=1e-3)
        cells.optimizer(tuple(ms.Tensor((a + b) / np.float32(2)) for a, b in zip(*clipped, strict=True)))
        expected = state_of(cells.step)
        for values, norm in zip(job(2), norms, strict=True):
            np.testing.assert_allclose(values[f"{run.key}/{c}/output/gradient_norm"], norm, rtol=LAST)
            ours = {name: values[f"{run.key}/{c}/state/{name}"] for name in expected}
            assert_close(ours, expected, cells.initial, FIRST if c == 0 else LAST)


def test_frozen_cycles_reduce_what_they_train() -> None:
    """As the same frozen program that accumulates the micro-batches of both ranks."""
    run = run_of("frozen")
    program = compiled(run, "gradient-freeze{groups=2,total_steps=6},gradient-accumulation{steps=2}")
    session = bc.Session(program)
    for c, cycle in enumerate(run.together(2)):
        variant = session.variant
        for batch in cycle:
            session.step(*batch)
        state = {n: v for n, v in session.state().items() if n in users(run, job(2)[0], c)}
        assert_close(users(run, job(2)[0], c), state, native.initial_state(run.case), FIRST)
    assert variant, "the last cycle must be a frozen one"


def test_scales_of_groups_move_alike_on_all_ranks() -> None:
    """As in one process that accumulates the micro-batches of both ranks: the same group overflows."""
    run = run_of("groups")
    session = bc.Session(compiled(run, f"gradient-accumulation{{steps=6}},{GROUPS}"))
    scales = set()
    for c, cycle in enumerate(run.together(2)):
        for batch in cycle:
            result = session.step(*batch)
        expected = {n: v for n, v in session.state().items() if n.startswith("loss_scale.")}
        scales.add(tuple(v.item() for v in expected.values()))
        for values in job(2):
            state = part(values, f"groups/{c}/state/")
            assert values[f"groups/{c}/updated"] == result.updated
            assert_equal({n: state[n] for n in expected}, expected)
        assert_equal(users(run, job(2)[1], c), users(run, job(2)[0], c))
        weights = {n: v for n, v in session.state().items() if n in users(run, job(2)[0], c)}
        assert_close(users(run, job(2)[0], c), weights, native.initial_state(run.case), LAST)
    assert len(scales) == 5


@pytest.mark.parametrize(
    ("name", "ranks"),
    [*((name, 2) for name in NATIVE[2]), *(pytest.param(name, 4, marks=pytest.mark.slow) for name in NATIVE[4])],
)
def test_an_export_of_data_parallel_mode_trains_like_it(name: str, ranks: int) -> None:
    """In every bit where the file divides by two ranks, and by nothing else; the sums of four ranks are rounded
    otherwise in a few elements."""
    for values in job(ranks):
        ours, theirs = part(values, f"exported/{name}/"), part(values, f"native/{name}/")
        if name in EXACT:
            assert_equal(ours, theirs)
        else:
            assert_close(ours, theirs, native.initial_state(name), FIRST)


def test_the_files_own_check_skips_on_all_ranks() -> None:
    run = Run("own", "mlp_loss_scale_dynamic", "", cycles=4, hits=((1, 1, 0), (2, 0, 0)))
    expected = train_scaled(run.case, run.together(2))
    assert expected.skipped == [False, True, True, False]
    first, second = job(2)
    for c, skipped in enumerate(expected.skipped):
        for values in (first, second):
            assert values[f"own/{c}/updated"] == (not skipped)
        ours = part(first, f"own/{c}/state/")
        assert_equal(part(second, f"own/{c}/state/"), ours)
        assert_close(ours, expected.states[c], expected.initial, LAST)


def test_collectives_of_a_cycle_in_graph_and_trace() -> None:
    """The trace is MindSpore's profiler: how often each kernel ran in two cycles. Four gradients and the count."""
    run, passes = described(2)[1]
    traffic = cycle_traffic(compiled(run, passes))
    assert (traffic.count, traffic.nbytes) == (5, 4 * (16 * 8 + 16 + 4 * 16 + 4 + 1))
    for values in job(2):
        assert values["trace/AllReduce"] == 2 * traffic.count
        assert not values["trace/others"].size
    together = cycle_traffic(compiled(run, "data-parallel"))
    assert (together.count, together.nbytes) == (2, traffic.nbytes)


def test_the_replica_check_names_weight_and_ranks() -> None:
    for values in job(2):
        assert "'output.weight' differ between rank 0, rank 1." in str(values["replicas"])


def test_a_checkpoint_in_mid_cycle_goes_on_with_the_sum_of_all_ranks() -> None:
    first, second = job(2)
    run = run_of("saved")
    program = compiled(run, "data-parallel")
    for name, variable in program.state.items():
        mine, theirs, shared = first[f"unsaved/{name}"], second[f"unsaved/{name}"], first[f"file/{name}"]
        if variable.role in ("accumulator", "statistic"):
            assert not np.array_equal(mine, theirs), f"{name}: the ranks must differ for this test"
            np.testing.assert_array_equal(shared, (mine + theirs) / np.float32(2), name)
        else:
            np.testing.assert_array_equal(shared, mine, name)
        # As many ranks as saved it load each its own.
        np.testing.assert_array_equal(first[f"loaded/{name}"], mine, name)
        np.testing.assert_array_equal(second[f"loaded/{name}"], theirs, name)
    weights = [name for name, variable in program.state.items() if variable.role in ("weight", "slot")]
    last = part(first, f"saved/{run.cycles - 1}/state/")
    initial = {n: v for n, v in native.initial_state(run.case).items() if n in weights}
    ours = {n: first[f"resumed/{n}"] for n in weights}
    # A bias in front of BatchNorm has no gradient but rounding.
    noise = native.train_accumulated(run.case, run.together(2)).noise()
    assert_close(ours, {n: last[n] for n in weights}, initial, LAST, noise)


def test_the_self_contained_file_trains_the_same() -> None:
    run = described(2)[1][0]
    for values in job(2):
        expected = part(values, f"{run.key}/{run.cycles - 1}/state/")
        whole = {n: v for n, v in part(values, "whole/").items() if n in expected}
        assert_equal({n: expected[n] for n in whole}, whole)
        assert {"hidden.weight", "moments.hidden.weight"} <= whole.keys()


def test_ranks_draw_their_own_dropout_masks() -> None:
    """Repeatably, and the first as a process that is alone."""
    first, second = job(2)
    for values in (first, second):
        assert values["dropout/0"] == values["dropout/1"]
    assert first["dropout/0"] != second["dropout/0"]
    alone = bc.Session(compiled(Run("dropout", "dropout", ""), "data-parallel"), seed=7)
    assert alone.step(*CASES["dropout"].batches(1)[0]).loss == first["dropout/0"]


Exported = Callable[[str], Path]


@pytest.mark.parametrize("passes", ["data-parallel", "gradient-accumulation{steps=3},data-parallel{mean=false}"])
@pytest.mark.parametrize("name", ["mlp_adam", "gpt_tied_sgd"])
def test_alone_the_program_trains_like_one_without(exported: Exported, name: str, passes: str) -> None:
    """Every bit: what joins and divides for ranks changes nothing in a job of one."""
    source = bc.load(str(exported(name)))
    without = ",".join(p for p in passes.split(",") if "data-parallel" not in p)
    states = []
    for pipeline in (passes, without):
        session = bc.Session(bc.compile(source, pipeline) if pipeline else source)
        for batch in CASES[name].batches(6):
            session.step(*batch)
        states.append(session.state())
    if "gpt" in name:
        initial = native.initial_state(name)
        assert_close({n: states[0][n] for n in initial}, {n: states[1][n] for n in initial}, initial, FIRST)
    else:
        assert_equal(*states)
