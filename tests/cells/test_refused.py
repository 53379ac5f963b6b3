"""Training cells that cannot be compiled, and programs that were compiled already: the reason, and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest
from boost_compile.tools import compile as compiling

import boost_compile as bc
from tests.tools.support import assert_one_error, shell

from .zoo import Export, Shape, WithoutSens

ACCUMULATE, CLIP, CHECK = "gradient-accumulation{steps=2}", "clip-gradients{limit=1}", "overflow-check"


@pytest.mark.parametrize(
    ("name", "passes", "says"),
    [
        *((name, p, "accumulates already") for name in ("own", "own_mapped", "own_scaled") for p in (ACCUMULATE, CLIP)),
        ("own", CHECK, "accumulates already"),
        ("own", "parameter-groups{match=*,lr_factor=0.5}", "accumulates already"),
        ("own", "schedule{total=9}", "accumulates already"),
        ("constant", ACCUMULATE, "updates 'weight' (by ApplyMomentum in Default/"),
        ("constant", CHECK, "what it updates from is a constant of the file"),
        ("given", ACCUMULATE, "what it updates from is the input 'gradient'"),
        *(
            (name, p, "sparse=False")
            for name in ("table", "table_adam")
            for p in (ACCUMULATE, CLIP, "replace-optimizer{to=lion}", "data-parallel")
        ),
    ],
)
def test_the_reason_is_true(cell_file: Export, name: str, passes: str, says: str) -> None:
    with pytest.raises(bc.Error) as caught:
        bc.compile(bc.load(cell_file(name)), passes)
    assert says in str(caught.value)
    assert "forward graph" not in str(caught.value).split("Or let")[0]


@pytest.mark.parametrize("name", ["table", "table_adam"])
def test_a_sparse_table_is_a_weight(cell_file: Export, name: str) -> None:
    program = bc.load(cell_file(name))
    assert [v.name for v in program.state.values() if v.role == "weight" and "table" in v.name]
    frozen = bc.compile(program, "freeze{match=*table*}")
    assert not any(v.name.endswith("table") and v.role == "slot" for v in frozen.state.values())


@pytest.mark.parametrize("name", ["table", "table_adam"])
def test_the_overflow_check_tests_sparse_gradients(cell_file: Export, name: str) -> None:
    """Each of the two dense gradients, and the rows of the table."""
    program = bc.compile(bc.load(cell_file(name)), CHECK)
    assert sum(node.op.name == "IsFinite" for node in program.graphs["step"]) == 3


@pytest.mark.parametrize("passes", [CLIP, "loss-scale", CHECK, ACCUMULATE])
@pytest.mark.parametrize("split", ["apply", "fused"])
def test_a_self_contained_file_was_compiled_already(
    cell_file: Export, tmp_path: Path, capsys: pytest.CaptureFixture[str], passes: str, split: str
) -> None:
    alone = tmp_path / "alone.mindir"
    bc.compile(bc.load(cell_file("aux")), f"gradient-accumulation{{steps=2,split={split}}}").save(str(alone))
    done = shell(capsys, compiling.command, alone, "--passes", passes, "-o", tmp_path / "again.boost")
    assert_one_error(done, "boost-compile", "was compiled already by gradient-accumulation", "NAME.boost")
    assert not (tmp_path / "again.boost").exists()


def test_a_program_that_is_split_was_compiled_already(cell_file: Export) -> None:
    program = bc.compile(bc.load(cell_file("aux")), f"{ACCUMULATE},{CLIP}")
    with pytest.raises(bc.Error, match="was compiled already by gradient-accumulation, clip-gradients"):
        bc.compile(program, ACCUMULATE)


def test_a_file_of_buckets_was_compiled_already(cell_file: Export, tmp_path: Path) -> None:
    bc.compile(bc.load(cell_file("aux")), "data-parallel").save(str(tmp_path / "ranks.mindir"))
    with pytest.raises(bc.Error, match="was compiled already by data-parallel"):
        bc.compile(bc.load(tmp_path / "ranks.mindir"), ACCUMULATE)


def test_cleaning_up_a_self_contained_file_is_allowed(cell_file: Export, tmp_path: Path) -> None:
    bc.compile(bc.load(cell_file("aux")), ACCUMULATE).save(str(tmp_path / "alone.mindir"))
    bc.compile(bc.load(tmp_path / "alone.mindir"), "dead-code-elimination")


def test_a_gradient_without_its_sens() -> None:
    shape = Shape(WithoutSens)
    with pytest.raises(bc.Error, match=r"lacks its sens[\s\S]*ops\.ones_like\(loss\)"):
        bc.capture(shape.build(), *shape.batches(1)[0])
