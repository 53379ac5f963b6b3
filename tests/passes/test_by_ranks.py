"""What passes for several ranks promise, held by running exported graphs on ranks with numpy (tests/execution.py)."""

from __future__ import annotations

import numpy as np
import pytest
from boost_compile.ir.core.primitives import ASCEND
from boost_compile.ir.core.program import Program
from boost_compile.passes import compile_program

from tests.execution import ORDERS, Arrays, train, train_ranks
from tests.material import batches, material, values

Inputs = list[list[np.ndarray]]
RANKS = 2


def compiled(name: str, *pipelines: str) -> Program:
    program = material(name)
    if "detect=status" in pipelines[0]:
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
    for run in runs:
        for memory in run:
            for name in role(program, "weight", "slot", "loss-scale", "hyperparameter"):
                np.testing.assert_array_equal(memory[name], first[name], err_msg=name)
    return first


def close(found: Arrays, wanted: Arrays, names: list[str]) -> None:
    """Up to the rounding of a few float32 additions."""
    for name in names:
        limit = 1e-3 if wanted[name].dtype == np.float16 else 2e-6
        np.testing.assert_allclose(found[name], wanted[name], rtol=0, atol=limit, err_msg=name)


NETWORKS = ("mlp", "mlp_adam_decay", "branch", "loop", "mlp_half_compute", "clip_global_norm", "mlp_loss_scale_dynamic")


@pytest.mark.parametrize("name", NETWORKS)
def test_ranks_train_like_one_process_that_accumulates(name: str) -> None:
    source = material(name)
    state, given = values(source), batches(source, 4)
    wanted = train(compiled(name, "gradient-accumulation{steps=2}"), state, given)[1]
    close(on_ranks(compiled(name, "data-parallel"), state, given), wanted, role(source, "weight", "slot"))


TWO, FOUR = "gradient-accumulation{steps=2}", "gradient-accumulation{steps=4}"
FUSED = "gradient-accumulation{steps=2,split=fused}"
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
        (f"{FOUR},overflow-check{{detect=status}}", f"{FUSED},overflow-check{{detect=status}},data-parallel"),
        (f"{FOUR},{FLAGGED}", f"{TWO},{FLAGGED},data-parallel"),
    ],
)
def test_a_cycle_of_ranks_is_one_of_all_their_micro_batches(alone: str, job: str, bad: int | None) -> None:
    """Also where one of them overflows."""
    source = material("mlp")
    state, given = values(source), batches(source, 4)
    if bad is not None and "overflow" in alone:
        given[bad][0] = np.full_like(given[bad][0], np.nan)
    names = role(source, "weight", "slot", "hyperparameter")
    one, other = compiled("mlp", alone), compiled("mlp", job)
    wanted = train(one, state, given)[1]
    close(on_ranks(other, state, given), wanted, names)
