"""Where in-place primitives stand in a rebuilt chain of tokens."""

from __future__ import annotations

import pytest
from boost_compile.ir.core.graph import Node
from boost_compile.ir.text import parse_program

import boost_compile as bc


def rebuilt(body: str) -> dict[str, Node]:
    """The nodes by name, with the chain made anew."""
    program = parse_program(f"""
        state %s: float32[2,3] role=weight
        state %w: float32[2,3] role=weight
        graph @step(%x: float32[2,3]) {{
          {body}
        }}
    """)
    return {node.name: node for node in bc.compile(program, "effect-chain-minimization").graphs["step"]}


@pytest.mark.parametrize("draw", ["InplaceUniform(%s, 0.0, 1.0, int64[]<1>, int64[]<0>", "AssignAdd(%s, %x"])
def test_reads_stay_on_their_side_of_a_write_that_draws(draw: str) -> None:
    """As of any other write. The table once said of InplaceUniform that it draws, and not that it writes."""
    nodes = rebuilt(f"""
        %old = Load(%s, umonad)
        %a = Add(%old, %x)
        %u1 = UpdateState(umonad, %a)
        %write = {draw}, %u1) : float32[2,3]
        %u2 = UpdateState(%u1, %write)
        %new = Load(%s, %u2)
        %t = MakeTuple(%a, %new)
        %u3 = UpdateState(%u2, %new)
        %r = Depend(%t, %u3)
        return %r
    """)

    def waits_for(node: Node) -> set[str]:
        found, stack = set(), [node.operand(node.num_operands - 1)]
        while stack:
            value = stack.pop()
            if isinstance(value, Node) and value.name not in found:
                found.add(value.name)
                stack.extend(value.operands)
        return found

    assert "a" in waits_for(nodes["write"])
    assert "write" in waits_for(nodes["new"])
    assert "write" not in waits_for(nodes["old"])


@pytest.mark.parametrize(
    ("write", "alone"), [("InplaceSubExt(%s, %x, 1", True), ("Unheard(%s, %x", True), ("AssignSub(%s, %x", False)]
)
def test_what_mindspore_would_drop_from_a_tuple_stands_alone(write: str, alone: bool) -> None:
    """A write of any tensor, or one that nobody knows, is what an UpdateState waits for by itself."""
    nodes = rebuilt(f"""
        %write = {write}, umonad) {{side_effect_mem = true}} : float32[2,3]
        %u1 = UpdateState(umonad, %write)
        %old = Load(%w, %u1)
        %a = Add(%old, %x)
        %u2 = UpdateState(%u1, %a)
        %other = Assign(%w, %x, %u2)
        %u3 = UpdateState(%u2, %other)
        %r = Depend(%a, %u3)
        return %r
    """)
    waiting = {user.op.name for user in nodes["write"].uses}
    assert waiting == ({"UpdateState"} if alone else {"MakeTuple"})
