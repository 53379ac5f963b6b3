"""What passes for several ranks promise, held by running exported graphs on ranks with numpy (tests/execution.py)."""

from __future__ import annotations

import numpy as np
import pytest
from boost_compile.ir.core.primitives import ASCEND
from boost_compile.ir.core.program import Program
from boost_compile.ir.rewrite.ranks.collectives import cycle_traffic
from boost_compile.passes import compile_program, parse_pipeline, print_pipeline

from tests.execution import ORDERS, Arrays, close, train, train_ranks
from tests.material import batches, material, values
from tests.passes.graphs import source

Inputs = list[list[np.ndarray]]
RANKS = 2


def compiled(name: str, *pipelines: str) -> Program:
    program = source(name)
    if any("detect=status" in pipeline for pipeline in pipelines):
        program.target = ASCEND
    for pipeline in pipelines:
        program = compile_program(program, pipeline, reproducer_directory=None)
    return program


def role(program: Program, *roles: str) -> list[str]:
    return [name for name, variable in program.state.items() if variable.role in roles]


def on_ranks(program: Program, state: Arrays, given: Inputs, ranks: int = RANKS) -> Arrays:
    """The state after training in which the ranks take the micro-batches in turn: the same weights on all, whatever
    order the tokens leave open."""
    parts = [given[rank::ranks] for rank in range(ranks)]
    runs = [[memory for _, memory in train_ranks(program, state, parts, order)] for order in ORDERS[:3]]
    first = runs[0][0]
    own = [] if "adasum" in program.pipeline else ["slot"]
    for run in runs:
        for memory in run:
            for name in role(program, "weight", "loss-scale", "hyperparameter", *own):
                np.testing.assert_array_equal(memory[name], first[name], err_msg=name)
    return first


def stepping(program: Program, state: Arrays) -> Arrays:
    """The state with empty slots: after one step of Momentum they hold the gradients."""
    return state | {name: np.zeros_like(state[name]) for name in role(program, "slot")}


NETWORKS = ("mlp", "mlp_adam_decay", "branch", "loop", "mlp_half_compute", "clip_global_norm", "mlp_loss_scale_dynamic")


TEXTS = ("STEP", "ON_ITS_WAY", "IN_FUNCTION", "TWICE", "IN_PARTS", "PART_OF_OTHER", "MEASURED", "NARROWED")


@pytest.mark.parametrize("pipeline", ["data-parallel", "data-parallel{fusion=0}"])
@pytest.mark.parametrize("name", [*NETWORKS, *TEXTS])
def test_ranks_train_like_one_process_that_accumulates(name: str, pipeline: str) -> None:
    program = source(name)
    state, given = values(program), batches(program, 4)
    wanted = train(compiled(name, "gradient-accumulation{steps=2}"), state, given)[1]
    close(on_ranks(compiled(name, pipeline), state, given), wanted, role(program, "weight", "slot"))


@pytest.mark.parametrize(("target", "dtype"), [("cpu", "float32"), ("ascend", "int32")])
def test_what_the_file_counts_over_ranks_it_still_counts(target: str, dtype: str) -> None:
    """MindSpore's CPU has no sums of integers."""
    program = source("COUNTS")
    program.target = target
    state, given = values(program), [[np.array(x, np.float32)] for x in ([1, 0], [2, 3])]
    program = compile_program(program, "data-parallel", reproducer_directory=None)
    (taken,) = [n.operand(0) for n in program.graphs["step"] if n.op.name == "AllReduce" and n.type.shape == (2,)]
    assert taken.type.dtype == dtype
    np.testing.assert_array_equal(on_ranks(program, state, given)["log"], [2, 2])


@pytest.mark.parametrize("name", ["FLAG", "FLAG_SUMMED"])
def test_a_flag_that_the_file_asks_is_that_of_all_ranks(name: str) -> None:
    """It is summed once, by the file or by the pass; only the first rank overflows."""
    program = compiled(name, "data-parallel")
    given = [[[np.array(x, np.float32)]] for x in ([3e38, 1], [2, 3])]
    for _, memory in train_ranks(program, {"w": np.full(2, 1e30)}, given):
        np.testing.assert_array_equal(memory["log"], [1] * 8)
    assert sum(n.op.name == "AllReduce" and n.type.shape == (8,) for n in program.graphs["step"]) == 1


def test_an_older_flag_is_left_to_a_file_that_sums_it() -> None:
    assert compiled("ALONE_SUMMED", "data-parallel").reports[-1].changed == 2


def test_gradients_are_exchanged_in_the_order_in_which_they_are_ready() -> None:
    """The last layer's first."""
    graph = compiled("mlp", "data-parallel").graphs["step"]
    (joined,) = [n.operand(0) for n in graph if n.op.name == "Concat"]
    sizes = [part.type.size for part in joined.operands]
    assert sorted(sizes[:2]) == [4, 4 * 16]
    assert sorted(sizes[2:]) == [16, 16 * 8]
    graph = compiled("DECLARED_LAST", "data-parallel").graphs["step"]
    (joined,) = [n.operand(0) for n in graph if n.op.name == "Concat"]
    assert [part.operand(0).name for part in joined.operands] == ["dw", "dv"]


def test_a_gradient_whose_shape_is_not_known_is_exchanged_by_itself() -> None:
    program = source("OPEN")
    state, given = values(program), batches(source("STEP"), 4)
    wanted = train(compiled("STEP", "gradient-accumulation{steps=2}"), state, given)[1]
    for pipeline in ("data-parallel", "parameter-groups{fusion=1},data-parallel"):
        close(on_ranks(compiled("OPEN", pipeline), state, given), wanted, ["v", "w"])


TWO, FOUR = "gradient-accumulation{steps=2}", "gradient-accumulation{steps=4}"
FUSED = "gradient-accumulation{steps=2,split=fused}"
SUM = "gradient-accumulation{steps=2,reduction=sum}"
WEIGHTED = "gradient-accumulation{steps=2,reduction=weighted,weight=inputs0}"
SMALL = "data-parallel{fusion=0.0003}"
MICRO = "overflow-check{policy=skip-micro}"
FLAGGED = "overflow-check{policy=skip-micro,detect=status}"
BUCKETS = "parameter-groups{match=[*.bias],fusion=3}"


@pytest.mark.parametrize("bad", [None, 1, 3])
@pytest.mark.parametrize(
    ("alone", "job"),
    [
        (FOUR, f"{TWO},data-parallel{{fusion=0}}"),
        (FOUR, f"{FUSED},{SMALL}"),
        (FOUR, f"{BUCKETS},{TWO},data-parallel"),
        (f"{FOUR},loss-scale{{mode=static,init=8}}", f"{TWO},data-parallel,loss-scale{{mode=static,init=8}}"),
        (f"{FOUR},overflow-check", f"{TWO},overflow-check,data-parallel"),
        (f"{FOUR},{MICRO}", f"{TWO},{MICRO},data-parallel"),
        (f"{FOUR},{MICRO}", f"{FUSED},{MICRO},data-parallel"),
        (f"{FOUR},{MICRO},loss-scale{{init=8}}", f"{FUSED},{MICRO},data-parallel,loss-scale{{init=8}}"),
        (f"{FOUR},clip-gradients{{limit=0.1}}", f"{FUSED},clip-gradients{{limit=0.1}},data-parallel"),
        ("gradient-accumulation{steps=4,reduction=sum}", f"{SUM},data-parallel{{mean=false}}"),
        (WEIGHTED.replace("2", "4"), f"{WEIGHTED},data-parallel"),
        (f"{FOUR},overflow-check{{detect=status}}", f"{FUSED},overflow-check{{detect=status}},data-parallel"),
        (f"{FOUR},{FLAGGED}", f"{TWO},{FLAGGED},data-parallel"),
        (f"{SUM.replace('2', '4')},{MICRO}", f"{SUM},{MICRO},data-parallel{{mean=false}}"),
        (f"{WEIGHTED.replace('2', '4')},{MICRO}", f"{WEIGHTED},{MICRO},data-parallel"),
    ],
)
def test_a_cycle_of_ranks_is_one_of_all_their_micro_batches(alone: str, job: str, bad: int | None) -> None:
    """Also where one of them overflows."""
    program = material("mlp")
    state, given = values(program), batches(program, 4)
    if bad is not None and "overflow" in alone:
        given[bad][0] = np.full_like(given[bad][0], np.nan)
    names = role(program, "weight", "slot", "hyperparameter")
    one, other = compiled("mlp", alone), compiled("mlp", job)
    wanted = train(one, state, given)[1]
    close(on_ranks(other, state, given), wanted, names)


@pytest.mark.parametrize(
    "before", ["", TWO, FUSED, SUM, "loss-scale{mode=static,init=8}", f"{TWO},loss-scale{{mode=static,init=8}}"]
)
def test_a_sum_is_the_mean_times_the_ranks(before: str) -> None:
    program = material("mlp")
    state, given = stepping(program, values(program)), batches(program, 4 if "steps" in before else 2)
    names = role(program, "slot")
    mean, total = (
        on_ranks(compiled("mlp", f"{before},data-parallel{{mean={mean}}}".strip(",")), state, given)
        for mean in ("true", "false")
    )
    assert all(np.abs(mean[name]).max() > 1e-3 for name in names)
    close(total, {name: RANKS * mean[name] for name in names}, names)
    if before == SUM:
        wanted = train(compiled("mlp", "gradient-accumulation{steps=4,reduction=sum}"), state, given)[1]
        close(total, wanted, names)


@pytest.mark.parametrize("bad", [None, 1])
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("data-parallel", f"{TWO},data-parallel{{fusion=0}}"),
        ("data-parallel", "overflow-check{detect=status}"),
        ("overflow-check", f"{TWO},data-parallel"),
        ("data-parallel{mean=false}", "loss-scale{mode=static,init=8}"),
        (f"{TWO},data-parallel", MICRO),
        (f"{TWO},data-parallel{{mean=false}}", "loss-scale{init=8}"),
        (f"{TWO},{MICRO},data-parallel{{fusion=0}}", "clip-gradients{limit=0.1}"),
        (f"{FUSED},{MICRO},data-parallel{{mean=false}}", "loss-scale{init=8}"),
        ("adasum{devices_per_group=2}", "overflow-check"),
        (f"{TWO},adasum,overflow-check", "clip-gradients{limit=0.1}"),
    ],
)
def test_what_is_compiled_twice_is_what_is_compiled_at_once(first: str, second: str, bad: int | None) -> None:
    """The reductions are taken out for the second pipeline, and put in again behind it."""
    program = material("mlp")
    state, given = values(program), batches(program, 4)
    if bad is not None and "overflow" in first + second:
        given[bad][0] = np.full_like(given[bad][0], np.inf)
    twice, once = compiled("mlp", first, second), compiled("mlp", ",".join(once_each(f"{first},{second}")))
    assert cycle_traffic(twice) == cycle_traffic(once)
    found, wanted = on_ranks(twice, state, given), on_ranks(once, state, given)
    for name in once.state:
        np.testing.assert_array_equal(found[name], wanted[name], err_msg=name)


def once_each(pipeline: str) -> list[str]:
    """The passes of a pipeline, the last of each."""
    passes = {p.name: print_pipeline([p]) for p in parse_pipeline(pipeline)}
    return list(passes.values())


STATIC = "loss-scale{mode=static,init=8}"


@pytest.mark.parametrize(
    "pipelines",
    [
        ["data-parallel"], ["data-parallel{fusion=0}"], [f"{TWO},data-parallel"], [f"{STATIC},data-parallel"],
        [f"{FUSED},{STATIC},{MICRO},data-parallel"], [f"{TWO},data-parallel", STATIC], ["data-parallel", STATIC],
        ["data-parallel", TWO],
    ],
)  # fmt: skip
def test_an_export_that_reduces_by_itself(pipelines: list[str]) -> None:
    """It was made for two ranks. A weight that it does not reduce stays each rank's own."""
    program = source("data_parallel_export.ir")
    state = {name: np.linspace(0.5, 1.5, 2, dtype=np.float32) for name in program.state} | {"rate": np.float32(0.125)}
    parts = [[[np.array(x, np.float32)] for x in data] for data in ([[1, 2], [0.5, 1]], [[3, 1], [2, 0.25]])]
    cycle = next((p for p in (TWO, FUSED) if any(p in pipeline for pipeline in pipelines)), "")
    native = train_ranks(compile_program(program, cycle, reproducer_directory=None), state, parts)
    for pipeline in pipelines:
        program = compile_program(program, pipeline, reproducer_directory=None)
    for order in ORDERS[:3]:
        for (_, found), (_, wanted) in zip(train_ranks(program, state, parts, order), native, strict=True):
            close(found, wanted, ["plain", "folded", "own"])
        assert program.reports[-1].options["mean"] is True
    assert not np.array_equal(native[0][1]["own"], native[1][1]["own"])


def test_an_export_that_sums() -> None:
    """Without a factor behind its sums it trains by sums, and so does the program."""
    program, found = source("SUMS"), compiled("SUMS", "data-parallel")
    assert found.reports[-1].options["mean"] is False
    state, given = values(program), batches(program, RANKS)
    close(on_ranks(found, state, given), on_ranks(program, state, given), ["v", "w"])


MANY = "parameter-groups{match=[half,stepped],fusion=7},data-parallel"


@pytest.mark.parametrize("pipeline", ["data-parallel{fusion=0}", "data-parallel", MANY])
def test_ranks_go_to_the_mean_of_where_each_would_go(pipeline: str) -> None:
    """Gradients in two parts, half precision, the file's unscaling and decays, a constant, sums of the network itself:
    all updates are affine in the gradient."""
    program = source("data_parallel.ir")
    rng = np.random.default_rng(1)
    state = {n: rng.standard_normal(v.shape).astype(v.type.dtype) for n, v in program.state.items()}
    state |= {"rate": np.float32(0.125), "rate16": np.float16(0.125)}
    parts = [
        [[rng.standard_normal(i.type.shape).astype(i.type.dtype) for i in program.graphs["step"].inputs]]
        for _ in range(RANKS)
    ]
    weights = role(program, "weight")
    native = [memory for _, memory in train_ranks(program, state, parts)]
    wanted = {n: np.mean([memory[n] for memory in native], axis=0, dtype=np.float64) for n in weights}
    found = compile_program(program, pipeline, reproducer_directory=None)
    for order in ORDERS[:3]:
        for _, memory in train_ranks(found, state, parts, order):
            for name in weights:
                limit = 5e-3 if memory[name].dtype == np.float16 else 5e-6
                np.testing.assert_allclose(memory[name], wanted[name], rtol=limit, atol=limit, err_msg=name)


@pytest.mark.parametrize(("ranks", "devices"), [(2, 1), (4, 1), (4, 2)])
@pytest.mark.parametrize("before", ["", "clip-gradients{limit=0.5},overflow-check,"])
def test_adasum_combines_the_steps_of_groups(ranks: int, devices: int, before: str) -> None:
    """A group steps as one process would with the micro-batches of its ranks; slots stay those of the group."""
    program = material("mlp")
    state, given = values(program), batches(program, ranks)
    weights, slots = role(program, "weight"), role(program, "slot")
    alone = compiled("mlp", f"{before}gradient-accumulation{{steps={devices}}}")
    groups = [train(alone, state, given[at : at + devices])[1] for at in range(0, ranks, devices)]
    job = compiled("mlp", f"{before}adasum{{devices_per_group={devices}}}")
    wanted = {n: state[n] - combined([state[n].astype(np.float64) - g[n] for g in groups]) for n in weights}
    for order in ORDERS[:3]:
        for rank, (_, found) in enumerate(train_ranks(job, state, [[batch] for batch in given], order)):
            close(found, {n: wanted[n].astype(np.float32) for n in weights}, weights)
            close(found, groups[rank // devices], slots)


def combined(steps: list[np.ndarray]) -> np.ndarray:
    """Pairs of steps, then pairs of pairs: each keeps what the other does not hold already."""
    while len(steps) > 1:
        steps = [
            (1 - (a * b).sum() / (2 * (a * a).sum())) * a + (1 - (a * b).sum() / (2 * (b * b).sum())) * b
            for a, b in zip(steps[::2], steps[1::2], strict=True)
        ]
    return steps[0]


@pytest.mark.parametrize(
    ("name", "pipeline"),
    [
        ("mlp", "adasum,overflow-check"), ("mlp", "overflow-check,data-parallel"),
        ("gated_update", "adasum,overflow-check"), ("gated_update", "overflow-check,data-parallel"),
        ("mlp_loss_scale_dynamic", "adasum"), ("mlp_loss_scale_dynamic", "data-parallel"),
        ("mlp_loss_scale_dynamic", "adasum,overflow-check"),
        ("mlp_loss_scale_dynamic", "overflow-check,data-parallel"),
        ("mlp_loss_scale_dynamic", "data-parallel{fusion=1}"),
    ],
)  # fmt: skip
def test_an_overflow_on_one_rank_skips_the_update_of_all(name: str, pipeline: str) -> None:
    """Also where the file checks by itself, or (the last) asks the flag of an Ascend."""
    target = "ascend" if "fusion=1" in pipeline else "cpu"
    program = material(name)
    program.target = target
    state, given = values(program), batches(program, 4)
    given[1][0] = np.full_like(given[1][0], np.nan)
    found = compile_program(program, pipeline, reproducer_directory=None)
    skipped = [train_ranks(found, state, [[given[0]], [given[1]]], order) for order in ORDERS[:3]]
    for _, memory in (rank for run in skipped for rank in run):
        for kept in role(program, "weight", "slot"):
            np.testing.assert_array_equal(memory[kept], state[kept], err_msg=kept)
        assert memory.get("overflow.skipped_cycles", 1) == 1
    moved = train_ranks(found, state, [given[0:1], given[2:3]])[0][1]
    assert all(np.abs(moved[weight] - state[weight]).max() > 1e-4 for weight in role(program, "weight"))
    assert moved.get("overflow.skipped_cycles", 0) == 0


@pytest.mark.parametrize("by", ["global-norm", "tensor-norm", "value"])
@pytest.mark.parametrize("cycle", ["", TWO, FUSED, f"{TWO},{STATIC}", f"{FUSED},{MICRO}"])
def test_ranks_that_clip_their_own_go_by_the_mean_of_what_is_left(cycle: str, by: str) -> None:
    """A rank's own is the mean of what it has: the slots hold what the optimizer got."""
    program = material("mlp")
    state, given = stepping(program, values(program)), batches(program, 4 if "steps" in cycle else 2)
    clip = f"{cycle},clip-gradients{{by={by},limit=0.03125}}".strip(",")
    alone = [train(compiled("mlp", clip), state, given[rank::RANKS])[1] for rank in range(RANKS)]
    names = role(program, "slot")
    wanted = {name: np.mean([memory[name] for memory in alone], axis=0) for name in names}
    found = on_ranks(compiled("mlp", f"{clip[:-1]},each_rank=true}},data-parallel"), state, given)
    close(found, wanted, names)
