"""Another batch size for what vision models are made of: the rewritten graph is the export at that size."""

from __future__ import annotations

from pathlib import Path

import pytest
from boost_compile.tools.compile import command

import boost_compile as bc
from tests.compare import assert_equal
from tests.passes.sizes import sizes
from tests.tools.support import shell

from .vision_network import KINDS, batch, export


def compare(kinds: tuple[str, ...], folder: Path) -> tuple[bc.Program, bc.Program]:
    """The graphs for 4 samples rewritten to 6, and exported for 6: node by node, constant by constant, bit by bit."""
    ours = bc.compile(bc.load(export(kinds, 4, folder)), "batch-size{size=6},dead-code-elimination")
    theirs = bc.compile(bc.load(export(kinds, 6, folder)), "dead-code-elimination")
    (mine,), (other,) = ours.graphs.values(), theirs.graphs.values()
    assert sizes(mine) == sizes(other)
    return ours, theirs


def test_an_ordinary_vision_network(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By the graph, by training, and by the command with a memory budget."""
    kinds = ("norms", "resize", "edges", "adaptive")
    ours, theirs = (bc.Session(p) for p in compare(kinds, tmp_path))
    for seed in (1, 2):
        assert ours.step(*batch(6, seed)).loss == theirs.step(*batch(6, seed)).loss
    assert_equal(ours.state(), theirs.state())

    source = tmp_path / f"{'-'.join(kinds)}.4.mindir"
    done = shell(capsys, command, source, "--memory-budget", "1GB", "--batch", "6", "-o", tmp_path / "a.boost")
    assert done.code == 0, done.err
    assert "not possible" not in done.err
    assert bc.load(tmp_path / "a.boost").graphs["step"].inputs[0].type.shape == (6, 3, 8, 8)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_each_kind(kind: str, tmp_path: Path) -> None:
    compare((kind,), tmp_path)
