"""Which cells stay in float32: as few as the bound allows, found without trying each node."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

import pytest
from boost_compile.ir.core.errors import OptionError, PassError
from boost_compile.passes import compile_program, parse_pipeline
from boost_compile.passes.mixed_precision import MixedPrecision, mixed_precision
from boost_compile.passes.mixed_precision.search import MOST, Off, Search, cells

from tests.graphs import graph
from tests.passes.graphs import source

CELLS = [f"cell{k}" for k in range(16)]


def search(bad: dict[str, float], bound: float = 0.01) -> Search:
    """Of a network in which each of ``bad`` moves a gradient by its number as long as it is in half precision."""

    def errors(kept: Sequence[str]) -> dict[str, float]:
        assert len(set(kept)) == len(kept)
        return {"w": max((off for cell, off in bad.items() if cell not in kept), default=0.001), "v": 0.0}

    return Search(errors, bound)


@pytest.mark.parametrize("bad", [{}, {"cell3": 0.5}, {"cell3": 0.5, "cell4": 0.02, "cell15": 0.3}])
def test_only_what_moves_a_gradient_stays(bad: dict[str, float]) -> None:
    found = search(bad)
    found.run(CELLS)
    assert list(found.kept) == list(bad)
    assert all((off.weight, off.others) == ("w", 0) and off.by >= bad[cell] for cell, off in found.kept.items())
    assert found.errors["w"] <= 0.01
    assert 1 <= found.measured <= 1 + 2 * 4 * len(bad)


def test_a_search_ends_and_leaves_in_float32_what_it_did_not_come_to() -> None:
    """Of 1,024 cells every third spoils a gradient: four at a time are as near as it looks."""
    many = [f"cell{k}" for k in range(1024)]
    within: list[Sequence[str]] = []

    def errors(kept: Sequence[str]) -> dict[str, float]:
        spoiled = not {f"cell{k}" for k in range(0, 600, 3)} <= set(kept)
        if not spoiled:
            within.append(kept)
        return {"w": 0.5 * spoiled}

    found = Search(errors, 0.01)
    found.run(many)
    assert found.measured == MOST
    assert list(found.kept) == list(within[-1]), "what stays is what was measured"
    assert set(found.kept.values()) <= {Off("w", 0.5, others) for others in (31, 63, 127)}
    said = (
        r"leaves no cell in half precision in 32 measurements: with 'cell0' and 15 other cells the gradient of 'w' is "
        r"off by 0\.5 on this data\. Give a larger bound: beyond that this is"
    )
    with pytest.raises(PassError, match=said):
        Search(lambda kept: {"w": 0.5 * (len(kept) < 1024)}, 0.01).run(many[:512])


def test_a_cell_that_overflows_stays_and_says_so() -> None:
    found = search({"cell3": inf})
    found.run(CELLS)
    assert list(found.kept) == ["cell3"]
    assert found.kept["cell3"].gradient(".2%") == "the gradient of 'w' overflows at a loss scale of 1"
    with pytest.raises(
        PassError,
        match=r"'w' overflows at a loss scale of 1 on this data\. So scale .* or take dtype=bfloat16 on Ascend",
    ):
        search(dict.fromkeys(CELLS, inf)).run(CELLS)


def test_a_bound_that_leaves_nothing_is_named() -> None:
    """With the cell that is least off, here the last."""
    with pytest.raises(PassError, match=r"leaves no cell in half precision: with 'cell15' alone .*'w' is off by 0.35 "):
        search({cell: 0.5 - k / 100 for k, cell in enumerate(CELLS)}).run(CELLS)


def test_the_report_says_what_is_kept_and_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second layer of the network moves the gradient of its weight by half as long as it is in half precision."""

    def errors_of(passes: Sequence[Any]) -> dict[str, float]:
        (mixed,) = passes
        assert mixed.data is None
        return {"v": 0.001, "w": 0.002 if "net/second-Dense" in (mixed.keep or "") else 0.5}

    monkeypatch.setattr(mixed_precision, "measurement", lambda program, data: errors_of)
    asked = "mixed-precision{level=O2,loss_scale=false,error=0.01,data=x.npz}"
    program = compile_program(source("mixed_precision/mixed_precision.ir"), asked, reproducer_directory=None)
    (report,) = program.reports
    assert (report.matched, report.changed) == (7, 4), "what the network computes; y, a and their gradients"
    kept = "stays in float32: with it in half precision the gradient of 'w' is off by 50.00%"
    assert [(m.site, m.reason) for m in report.misses][-1] == ("net/second-Dense", kept)
    assert report.statistics["cells kept for error"] == 1
    assert report.statistics["gradient errors"] == {"w": "0.200%", "v": "0.100%"}
    assert report.summary.endswith("; gradients off by at most 0.20% ('w')")
    (recorded,) = parse_pipeline(program.pipeline)
    assert (recorded.options()["keep"], recorded.options()["data"]) == ("net/second-Dense", None)


def test_a_bound_is_a_number_that_rounding_can_keep() -> None:
    with pytest.raises(OptionError, match="option 'error' must be at least 1e-06, not 1e-09"):
        parse_pipeline("mixed-precision{error=1e-9,data=x.npz}")
    with pytest.raises(OptionError, match="option 'error' must be at least 1e-06, not 1e-09"):
        MixedPrecision(error=1e-9, data="x.npz")


@pytest.mark.parametrize(
    ("asked", "comes"),
    [("", True), ("loss_scale=true,", True), ("loss_scale=false,", False), ("dtype=bfloat16,", False)],
)
def test_float16_brings_a_loss_scale_along(asked: str, comes: bool) -> None:
    step = source("mixed_precision/mixed_precision.ir")
    program = compile_program(step, f"mixed-precision{{{asked}level=O2}}", target="ascend", reproducer_directory=None)
    assert ("loss-scale" in [report.name for report in program.reports]) == comes


def test_a_cell_around_others_is_named_by_its_own_nodes() -> None:
    made = graph(
        """  %a = Exp(%x) : float32[2] scope("net/Block/one[0]-Dense/Exp-op0")
  %b = Neg(%a) : float32[2] scope("net/Block/Neg-op0")
  %c = Abs(%b) : float32[2] scope("net/Block/Abs-op0")
  return %c"""
    )
    assert cells(made) == ["net/Block/one[[]0]-Dense", "net/Block/Neg-op0|net/Block/Abs-op0"]
    # One whose name only begins like another's is not around it.
    longer = graph(
        """  %a = Exp(%x) : float32[2] scope("net/Block/Exp-op0")
  %b = Neg(%a) : float32[2] scope("net/Block2/Neg-op0")
  return %b"""
    )
    assert cells(longer) == ["net/Block", "net/Block2"]
