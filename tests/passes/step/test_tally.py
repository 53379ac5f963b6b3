"""Numbers that a rank counts for itself."""

from __future__ import annotations

from boost_compile.passes.step.tally import declare_tally, find_tally, move_marks, tallies

from tests.graphs import graph, node


def test_declared_found_and_moved() -> None:
    g = graph("%a = Neg(%x)\n%b = Exp(%a)\n%c = Neg(%b)\nreturn %c")
    a, b, c = (node(g, name) for name in "abc")
    a.marks = {"stage": "accumulate"}
    assert declare_tally(a, "micro-batches") is a
    declare_tally(c, "ranks")
    assert list(tallies(g)) == [("micro-batches", a), ("ranks", c)]
    assert find_tally(g, "ranks") is c
    assert find_tally(g, "dropped") is None
    move_marks(a, b, ("tally",))
    assert a.marks == {"stage": "accumulate"}
    assert b.marks == {"tally": "micro-batches"}
    assert find_tally(g, "micro-batches") is b
    move_marks(b, c, ("tally", "stage"))
    assert c.marks == {"tally": "micro-batches"}  # what the old one lacks is not taken
