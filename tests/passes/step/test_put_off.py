"""What the backward part computes of the forward part alone, and when."""

from __future__ import annotations

from boost_compile.ir.analysis.training.network import network_parts
from boost_compile.ir.core.graph import Graph
from boost_compile.passes.step.put_off import put_off

from tests.graphs import graph

FORTH = "  %a = Exp(%x) @f\n  %b = Square(%a) : float32[2] @f\n"


def late(body: str) -> tuple[Graph, dict[str, str]]:
    """The graph behind put_off, and by name what waits for what."""
    made = graph(FORTH + body)
    return made, {node.name: gradient.name for node, gradient in put_off(made, network_parts(made)).items()}


def test_it_waits_for_the_gradient_of_its_first_user_and_stands_in_front_of_it() -> None:
    made, found = late(
        "  %n = Neg(%a) @b\n  %m = Square(%n) : float32[2] @b\n  %g = OnesLike(%b) @b\n  %h = Neg(%g) @b\n"
        "  %i = Mul(%m, %h) @b\n  %j = Mul(%i, %n) @b\n  return %j"
    )
    assert found == {"m": "h", "n": "h"}
    assert [node.name for node in made] == list("abghnmij")


def test_what_would_keep_more_than_it_makes_is_not_put_off() -> None:
    """Nor what no gradient meets, what the forward part computes, or what would be another number at another time."""
    sums = "  %m = Neg(%a) @b\n  %n = ReduceSum(%m, (0,), false, false) : float32[] @b\n"
    _, found = late(sums + "  %g = OnesLike(%b) @b\n  %i = Mul(%n, %g) : float32[2] @b\n  return %i")
    assert found == {}
    _, found = late("  %n = Neg(%a) @b\n  %i = Mul(%n, %a) @b\n  return %i")
    assert found == {}
    _, found = late("  %g = OnesLike(%b) @b\n  %i = Mul(%a, %g) @b\n  return %i")
    assert found == {}
    drawn = "  %n = Neg(%a) {side_effect_hidden = true} @b\n  %g = OnesLike(%b) @b\n  %i = Mul(%n, %g) @b\n"
    _, found = late(drawn + "  return %i")
    assert found == {}


def test_what_waits_for_what_is_put_off_itself_moves_with_it() -> None:
    made, found = late(
        "  %n = Neg(%x) @b\n  %m = Neg(%a) @b\n  %k = Mul(%n, %m) @b\n  %g = OnesLike(%b) @b\n"
        "  %i = Mul(%k, %g) @b\n  return %i"
    )
    assert found == {"n": "m", "m": "g", "k": "g"}
    assert [node.name for node in made] == list("abgmnki")


def test_what_the_gradient_is_computed_of_does_not_wait_for_it() -> None:
    """%n leads to %h, which %i takes: only %m, which nothing else takes, may wait for %h."""
    made, found = late(
        "  %n = Neg(%a) @b\n  %m = Square(%n) : float32[2] @b\n  %g = OnesLike(%b) @b\n  %h = Mul(%g, %n) @b\n"
        "  %i = Mul(%m, %h) @b\n  return %i"
    )
    assert found == {"m": "h"}
    assert [node.name for node in made][-2:] == ["m", "i"]
