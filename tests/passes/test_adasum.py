"""AdaSum in a program: what it leaves alone outside of a job, in whatever order passes are asked for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from boost_compile.ir.analysis.compare.diff import diff
from boost_compile.ir.rewrite.ranks.adasum import ADASUM
from boost_compile.ir.rewrite.ranks.collectives import collectives, group_of
from boost_compile.passes.adasum import AGREED

import boost_compile as bc
from tests.compare import assert_equal
from tests.networks import CASES

Exported = Callable[[str], Path]

CASES_ALONE = ["mlp_adam", "mlp_adam_weight_decay_decomposed", "lenet_bn", "gated_update", "mlp_half_weights", "lstm"]
OTHERS = [
    "gradient-accumulation{steps=2}",
    "gradient-accumulation{steps=2,split=fused}",
    "overflow-check",
    "loss-scale{mode=dynamic}",
    "clip-gradients",
    "parameter-groups{match=[*weight*],lr_factor=2.0}",
    "gradient-freeze{groups=2}",
    "data-parallel",
]


def compiled(path: Path, *pipelines: str) -> bc.Program:
    program = bc.load(path)
    for pipeline in pipelines:
        program = bc.compile(program, pipeline)
    return program


def trained(program: bc.Program, case: str, micro_batches: int) -> dict[str, np.ndarray]:
    session = bc.Session(program)
    for batch in CASES[case].batches(micro_batches):
        session.step(*batch)
    return session.state()


@pytest.mark.parametrize("case", CASES_ALONE)
def test_a_process_by_itself_trains_as_without(exported: Exported, case: str) -> None:
    """Every state, in every bit."""
    path = exported(case)
    for without, adasum in (("", "adasum"), ("data-parallel", "adasum{devices_per_group=4}")):
        assert_equal(trained(compiled(path, adasum), case, 3), trained(compiled(path, without), case, 3))


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("adasum", ["adasum", "adasum{devices_per_group=2}"])
def test_order_does_not_matter(exported: Exported, adasum: str, other: str) -> None:
    path = exported("mlp_adam")
    together = compiled(path, f"{adasum},{other}")
    for other_order in (
        compiled(path, f"{other},{adasum}"),
        compiled(path, adasum, other),
        compiled(path, other, adasum),
    ):
        found = diff(together, other_order)
        assert not found, str(found)


def test_it_runs_once_a_cycle_and_only_among_groups(exported: Exported) -> None:
    program = compiled(
        exported("lenet_bn"), "adasum{devices_per_group=4},gradient-accumulation{steps=3},overflow-check,data-parallel"
    )
    for name, graph in program.graphs.items():
        combined = sum(n.op.name == ADASUM for body in graph.all_graphs() for n in body)
        groups = {group_of(n) for n in collectives(graph)}
        if name == "apply":
            assert combined == sum(bool(v.trainable) for v in program.state.values())
            # Gradients and their divisor among neighbours, the decision to skip among all.
            assert groups == {"neighbours_of_4", "mccl_world_group"}
        else:
            assert not combined
            assert not groups


def test_a_check_of_the_file_asks_all_ranks(exported: Exported) -> None:
    for case in ("scaled_dynamic", "scaled_lenet_adam"):
        path = exported(case)
        program = compiled(path, "adasum")
        (graph,) = program.graphs.values()
        (agreed,) = [n for n in graph if AGREED in n.marks]
        assert agreed.operand(0).op.name == "IsFinite"
        assert sum(group_of(n) == "mccl_world_group" for n in collectives(graph)) == 1
        assert not program.reports[-1].misses
        accumulate = "gradient-accumulation{steps=2}"
        assert not diff(compiled(path, "adasum", accumulate), compiled(path, f"{accumulate},adasum"))


def test_no_self_contained_form(exported: Exported, tmp_path: Path) -> None:
    with pytest.raises(bc.Error, match=r"adasum.*depends on the rank .*program directory"):
        compiled(exported("mlp"), "adasum").save(str(tmp_path / "whole.mindir"))
    assert not list(tmp_path.iterdir())
