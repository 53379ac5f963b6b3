"""Effects that move into a function happen unless the condition holds, and everything else happens as before."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest
from boost_compile.ir.core.errors import VerifyError
from boost_compile.ir.core.graph import Graph
from boost_compile.ir.rewrite.effects.editing import Effects
from boost_compile.ir.rewrite.effects.outline import skip_where
from boost_compile.ir.verify.verifier import verify

from tests import effect_graphs
from tests.execution import Arrays, _in_text_order, run_graph
from tests.graphs import graph, node, results

X = np.array([1, 2], np.float32)
STATE = {"a": np.array([3, 5], np.float32), "b": np.array([7, 11], np.float32), "c": np.array([13, 17], np.float32)}
HEAD = """
state %a: float32[2]
state %b: float32[2]
state %c: float32[2]
graph @step(%x: float32[2], %no: bool[]) {
"""


def outlined(body: str, *names: str, stay: tuple[str, ...] = ()) -> Graph:
    g = graph(HEAD + body + "\n}")
    fx = Effects(g)
    chosen = [e for e in fx.list if e.node.name in names]
    assert len(chosen) == len(names)
    condition = next(v for v in g.inputs if v.name == "no")
    skip_where(fx, condition, chosen, stay=[node(g, s) for s in stay], name="update", scope="")
    fx.commit()
    verify(g)
    return g


def check(body: str, *names: str, without: str, stay: tuple[str, ...] = ()) -> Graph:
    """Where the condition does not hold, the graph is what it was; where it holds, it is `without`."""
    g = outlined(body, *names, stay=stay)
    agree(g, HEAD + body + "\n}", HEAD + without + "\n}", STATE)
    return g


def agree(g: Graph, source: str, without: str, start: Arrays) -> None:
    for skipped, plain in ((False, source), (True, without)):
        memory = {name: value.copy() for name, value in start.items()}
        inputs = [X, np.array(skipped)]
        wanted = run_graph(graph(plain), inputs, memory, _in_text_order)
        for found, state in results(g, inputs, start):
            np.testing.assert_array_equal(found, wanted, err_msg=f"skipped: {skipped}\n{source}")
            for name in start:
                np.testing.assert_array_equal(state[name], memory[name], err_msg=f"{name}, skipped: {skipped}")


@pytest.mark.parametrize("first", range(0, 150, 15))
def test_writes_of_random_graphs(first: int) -> None:
    """A skipped write leaves the state as it was, and who takes its result reads that. A single write can always be
    skipped; of several, those that others must come between cannot."""
    tried = refused = 0
    for seed in range(first, first + 15):
        source = effect_graphs.text(seed, late=False)
        g = graph(source)
        fx = Effects(g)
        writes = [e for e in fx.list if e.node.op.name.startswith("Assign")]
        if not writes:
            continue
        tried += 1
        draw = random.Random(seed)
        chosen = draw.sample(writes, draw.randint(1, len(writes)))
        without = source
        for e in chosen:
            write = rf"^(%{e.node.name}) = \w+\((%\w+), %\w+, (%?\w+)\).*$"
            without = re.sub(write, r"\1 = Load(\2, \3)", without, flags=re.MULTILINE)
        try:
            skip_where(fx, g.inputs[1], chosen, name="update", scope="")
            fx.commit()
        except VerifyError:
            refused += 1
            assert len(chosen) > 1, source
        else:
            verify(g)
            agree(g, source, without, effect_graphs.STATE)
    assert refused < tried / 3


def test_an_update_and_what_only_it_needs() -> None:
    body = """
  %l = Load(%a, umonad)
  %n = Neg(%l)
  %both = Exp(%x)
  %only = Mul(%both, %n)
  %u = UpdateState(umonad, %only)
  %w = AssignAdd(%a, %only, %u)
  %v = UpdateState(%u, %w)
  %r = Depend(%both, %v)
  return %r"""
    g = check(body, "w", without="%both = Exp(%x)\nreturn %both")
    main = {n.name for n in g}
    assert "both" in main  # the result takes it too
    assert not main & {"n", "only", "w"}


def test_what_stays_is_computed_outside() -> None:
    body = """
  %both = Exp(%x)
  %only = Neg(%both)
  %w = Assign(%a, %only, umonad)
  %v = UpdateState(umonad, %w)
  %r = Depend(%x, %v)
  return %r"""
    g = check(body, "w", without="return %x", stay=("only",))
    assert "only" in {n.name for n in g}


def test_a_result_of_a_skipped_write_is_read_from_the_state() -> None:
    """What the graph returns of the write is what the state holds, whether or not it was written."""
    body = """
  %w = AssignAdd(%a, %x, umonad) : float32[2]@a
  %v = UpdateState(umonad, %w)
  %n = Neg(%w)
  %r = Depend(%n, %v)
  return %r"""
    check(body, "w", without="%l = Load(%a, umonad)\n%n = Neg(%l)\nreturn %n")


def test_other_effects_before_between_and_after() -> None:
    body = """
  %w1 = AssignAdd(%b, %x, umonad)
  %u1 = UpdateState(umonad, %w1)
  %l1 = Load(%b, %u1)
  %m = Mul(%l1, %x)
  %u2 = UpdateState(%u1, %m)
  %w2 = AssignAdd(%a, %m, %u2)
  %u3 = UpdateState(%u2, %w2)
  %w3 = AssignAdd(%c, %x, %u3)
  %u4 = UpdateState(%u3, %w3)
  %l2 = Load(%a, %u4)
  %n = Neg(%l2)
  %u5 = UpdateState(%u4, %n)
  %w4 = Assign(%b, %n, %u5)
  %u6 = UpdateState(%u5, %w4)
  %r = Depend(%n, %u6)
  return %r"""
    without = body.replace("%w2 = AssignAdd(%a, %m, %u2)\n", "").replace(
        "UpdateState(%u2, %w2)", "UpdateState(%u2, %m)"
    )
    check(body, "w2", without=without)


def test_a_load_that_feeds_a_moved_node_comes_before_a_later_write_of_its_state() -> None:
    """The Load stays outside, since the result takes it too; the moved node reads the memory that the later write
    changes. So that write waits for the call."""
    body = """
  %l = Load(%b, umonad)
  %out = Neg(%l)
  %m = Mul(%l, %x)
  %u1 = UpdateState(umonad, %m, %out)
  %w1 = AssignAdd(%a, %m, %u1)
  %u2 = UpdateState(%u1, %w1)
  %w2 = Assign(%b, %x, %u2)
  %u3 = UpdateState(%u2, %w2)
  %r = Depend(%out, %u3)
  return %r"""
    without = body.replace("%w1 = AssignAdd(%a, %m, %u1)\n", "").replace(
        "UpdateState(%u1, %w1)", "UpdateState(%u1, %m)"
    )
    check(body, "w1", without=without)
    through_a_view = body.replace(
        "%m = Mul(%l, %x)", "%wide = Reshape(%l, (1, 2)) : float32[1,2]\n%back = Reshape(%wide, (2,)) : float32[2]\n"
        "%keep = Exp(%back)\n%m = Mul(%back, %x)"
    )  # fmt: skip
    through_a_view = through_a_view.replace("Depend(%out,", "Depend(%both,")
    through_a_view = through_a_view.replace("%u1 =", "%both = Mul(%out, %keep)\n%u1 =")
    without = through_a_view.replace("%w1 = AssignAdd(%a, %m, %u1)\n", "")
    check(through_a_view, "w1", without=without.replace("UpdateState(%u1, %w1)", "UpdateState(%u1, %m)"))


def test_a_write_comes_after_who_reads_its_state_and_what_the_update_wrote() -> None:
    """The product waits for the update, since it takes what that wrote; so the write of %b, which touches nothing of
    the update, waits too."""
    body = """
  %l = Load(%b, umonad)
  %w1 = AssignAdd(%a, %x, umonad)
  %u1 = UpdateState(umonad, %w1)
  %new = Load(%a, %u1)
  %p = Mul(%l, %new)
  %u2 = UpdateState(%u1, %p)
  %w2 = Assign(%b, %x, %u2)
  %u3 = UpdateState(%u2, %w2)
  %r = Depend(%p, %u3)
  return %r"""
    without = body.replace("%w1 = AssignAdd(%a, %x, umonad)\n", "").replace(
        "UpdateState(umonad, %w1)", "UpdateState(umonad, %l)"
    )
    check(body, "w1", without=without)


def test_the_result_of_a_skipped_write_is_what_stood_before_the_next_write() -> None:
    body = """
  %w1 = AssignAdd(%a, %x, umonad) : float32[2]@a
  %n = Neg(%w1)
  %u1 = UpdateState(umonad, %n)
  %w2 = AssignAdd(%a, %n, %u1) : float32[2]@a
  %u2 = UpdateState(%u1, %w2)
  %r = Depend(%n, %u2)
  return %r"""
    check(body, "w1", without=body.replace("AssignAdd(%a, %x, umonad) : float32[2]@a", "Load(%a, umonad)"))


def test_what_overwrites_a_state_that_the_update_reads_comes_after_it() -> None:
    body = """
  %l = Load(%b, umonad)
  %m = Neg(%l)
  %u1 = UpdateState(umonad, %m)
  %w1 = AssignAdd(%a, %m, %u1)
  %u2 = UpdateState(%u1, %w1)
  %w2 = Assign(%b, %x, %u2)
  %u3 = UpdateState(%u2, %w2)
  %r = Depend(%x, %u3)
  return %r"""
    without = body.replace("%w1 = AssignAdd(%a, %m, %u1)\n", "").replace(
        "UpdateState(%u1, %w1)", "UpdateState(%u1, %m)"
    )
    check(body, "w1", without=without)


def test_results_of_several_skipped_writes() -> None:
    body = """
  %w1 = AssignAdd(%a, %x, umonad) : float32[2]@a
  %u1 = UpdateState(umonad, %w1)
  %w2 = AssignAdd(%b, %x, %u1) : float32[2]@b
  %u2 = UpdateState(%u1, %w2)
  %s = Mul(%w1, %w2)
  %r = Depend(%s, %u2)
  return %r"""
    without = "%l = Load(%a, umonad)\n%m = Load(%b, umonad)\n%s = Mul(%l, %m)\nreturn %s"
    check(body, "w1", "w2", without=without)


def test_results_of_skipped_calls_are_zero() -> None:
    body = """
  %c1 = call(@add, %a, %x, umonad) : float32[2]
  %u1 = UpdateState(umonad, %c1)
  %c2 = call(@add, %b, %x, %u1) : float32[2]
  %u2 = UpdateState(%u1, %c2)
  %n = Exp(%c1)
  %s = Sub(%n, %c2)
  %r = Depend(%s, %u2)
  return %r
  func @add(%s: float32[2], %v: float32[2], %u: umonad) {
    %w = AssignAdd(%s, %v, %u)
    %t = UpdateState(%u, %w)
    %l = Load(%s, %t)
    %n = Mul(%l, %v)
    %r = Depend(%n, %t)
    return %r
  }"""
    check(body, "c1", "c2", without="%z = Sub(%x, %x)\n%r = Exp(%z)\nreturn %r")


@pytest.mark.parametrize(
    ("body", "names", "says"),
    [
        (
            # w2 writes what w1 wrote before it, and w3 writes it once more
            """
  %w1 = AssignAdd(%a, %x, umonad)
  %u1 = UpdateState(umonad, %w1)
  %w2 = AssignSub(%a, %x, %u1)
  %u2 = UpdateState(%u1, %w2)
  %w3 = AssignAdd(%a, %x, %u2)
  %u3 = UpdateState(%u2, %w3)
  %r = Depend(%x, %u3)
  return %r""",
            ("w1", "w3"),
            "must happen after one update and before another",
        ),
        (
            # the result takes what w2 read before w3 overwrote it
            """
  %w1 = AssignAdd(%a, %x, umonad)
  %u1 = UpdateState(umonad, %w1)
  %l = Load(%a, %u1)
  %p = Neg(%l)
  %u2 = UpdateState(%u1, %p)
  %w3 = AssignAdd(%a, %x, %u2)
  %u3 = UpdateState(%u2, %w3)
  %r = Depend(%p, %u3)
  return %r""",
            ("w1", "w3"),
            "must happen after one update and before another",
        ),
        (
            # the result takes the Load of what the update wrote, and the other update is given it
            """
  %w1 = AssignAdd(%a, %x, umonad)
  %u1 = UpdateState(umonad, %w1)
  %l1 = Load(%a, %u1)
  %u2 = UpdateState(%u1, %l1)
  %w2 = Assign(%b, %l1, %u2)
  %u3 = UpdateState(%u2, %w2)
  %n = Neg(%l1)
  %r = Depend(%n, %u3)
  return %r""",
            ("w1", "w2"),
            "an update needs .* which uses 'a' after another update has touched it",
        ),
    ],
    ids=["written", "read", "needed"],
)
def test_updates_that_cannot_be_skipped_together(body: str, names: tuple[str, ...], says: str) -> None:
    with pytest.raises(VerifyError, match=says):
        outlined(body, *names)


def test_the_function_takes_state_and_token_last() -> None:
    """State that moved nodes touch is passed in; constants come along; the token is the last operand."""
    body = """
  %l = Load(%b, umonad)
  %m = Mul(%l, float32[2]<2.0, 3.0>)
  %u1 = UpdateState(umonad, %m)
  %w1 = AssignAdd(%a, %m, %u1)
  %u2 = UpdateState(%u1, %w1)
  %r = Depend(%x, %u2)
  return %r"""
    g = check(body, "w1", without="return %x")
    update, skip = (next(f for f in g.all_graphs() if f.name == name) for name in ("update", "skip_update"))
    assert {v.name for v in update.inputs[:-1]} == {"a", "b"}
    assert str(update.inputs[-1].type) == "umonad"
    assert skip.inputs == []
    assert len(list(skip)) == 0
