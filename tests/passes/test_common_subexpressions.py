"""Two equal nodes stay two where each does something of its own."""

from __future__ import annotations

import pytest
from boost_compile.ir.core.graph import Constant, Origin
from boost_compile.ir.text import parse_program

import boost_compile as bc


@pytest.mark.parametrize(
    ("node", "stay"),
    [
        ("Sqrt(%x)", 1),
        ('AllReduce(%x) {group = "g", op = "sum"}', 2),
        ('InnerCommAllReduce(%x, "sum", "g")', 2),
        ("NeighborExchangeV2(%x)", 2),
        ("FractionalAvgPool(%x) {seed = 0, seed2 = 0}", 2),
        ("GenerateEodMaskV2(%x, 1, 0)", 2),
        ("StandardNormal((2, 3)) {seed = 1, seed2 = 1}", 2),
    ],
)
def test_draws_and_collectives_are_never_merged(node: str, stay: int) -> None:
    program = parse_program(f"""
        graph @g(%x: float32[2,3]) {{
          %a = {node} : float32[2,3]
          %b = {node} : float32[2,3]
          %r = Add(%a, %b) : float32[2,3]
          return %r
        }}
    """)
    compiled = bc.compile(program, "common-subexpression-elimination")
    assert len(compiled.graphs["g"]) == stay + 1


def merged(body: str) -> bc.Program:
    program = parse_program(f"graph @g(%x: float32[2]) {{\n{body}\n}}")
    return bc.compile(program, "common-subexpression-elimination")


@pytest.mark.parametrize(
    ("first", "second", "stay", "notes"),
    [
        ("marks {k = 1}", "", 1, [{"k": 1}]),
        ("", "marks {k = 1}", 1, [{"k": 1}]),
        ("marks {k = 1}", "marks {k = 1}", 1, [{"k": 1}]),
        ("marks {k = 1}", "marks {k = 2}", 2, [{"k": 1}, {"k": 2}]),
        ("marks {k = 1}", "marks {j = 1}", 2, [{"k": 1}, {"j": 1}]),
    ],
)
@pytest.mark.parametrize("kind", ["marks", "primal"])
def test_notes_stay(kind: str, first: str, second: str, stay: int, notes: list[dict[str, int]]) -> None:
    """Nothing that a note says is lost: of nodes that say different things both stay, and a third joins its like."""
    first, second = first.replace("marks", kind), second.replace("marks", kind)
    found = merged(
        f"  %a = Exp(%x) : float32[2] {first}\n  %b = Exp(%x) : float32[2] {second}\n"
        f"  %c = Exp(%x) : float32[2] {second}\n  %all = MakeTuple(%a, %b, %c)\n  return %all"
    )
    nodes = [node for node in found.graphs["g"] if node.op.name == "Exp"]
    assert len(nodes) == stay
    assert [dict(getattr(node, kind)) for node in nodes] == notes
    (report,) = found.reports
    assert (report.matched, report.changed) == (2, 3 - stay)
    assert report.summary == f"merged {3 - stay} of 2 nodes that repeat another"
    missed = ["g: %b (Exp)"] if stay == 2 else []
    assert [m.site for m in report.misses] == missed
    assert all(m.reason == "equals %a, but stands for another part of the training step" for m in report.misses)


def test_what_merged_nodes_were_derived_from() -> None:
    text = """
    %a = Exp(%x) : float32[2]
    %b = Exp(%x) : float32[2]
    %c = Exp(%x) : float32[2]
    %d = Exp(%a) : float32[2]
    %all = MakeTuple(%a, %b, %c, %d)
    return %all"""
    source = parse_program(f"graph @g(%x: float32[2]) {{{text}\n}}")
    for node in source.graphs["g"]:
        if node.name in "ab":
            sources, by = (("p", "q"), "one") if node.name == "a" else (("q", "r"), "two")
            node.origin = Origin(sources, (by, "common-subexpression-elimination"))
    found = bc.compile(source, "common-subexpression-elimination").graphs["g"]
    a = next(iter(found))
    assert a.origin == Origin(("p", "q", "r", "c"), ("one", "two", "common-subexpression-elimination"))


def test_constants_are_merged_and_counted() -> None:
    twos = "".join(f"  const %{name} = float32[]<2.0>\n" for name in "ijk") + "  const %l = float32[]<3.0>\n"
    found = merged(
        f"{twos}  %a = Mul(%x, %i)\n  %b = Add(%x, %j)\n  %c = Mul(%a, %k)\n  %d = Sub(%c, %l)\n"
        "  %all = MakeTuple(%b, %d)\n  return %all"
    )
    (report,) = found.reports
    assert report.statistics == {"nodes": 0, "constants": 2}
    assert (report.matched, report.changed, report.summary) == (2, 2, "merged 2 equal constants")
    numbers = {v for node in found.graphs["g"] for v in node.operands if isinstance(v, Constant)}
    assert len(numbers) == 2
    both = merged(f"{twos}  %a = Mul(%x, %i)\n  %b = Mul(%x, %j)\n  %c = Add(%a, %b)\n  return %c")
    assert both.reports[0].summary == "merged 1 of 1 node that repeats another and 1 equal constant"
    assert merged("  %a = Exp(%x) : float32[2]\n  return %a").reports[0].summary == "no node repeats another"


def test_aliases_of_state_have_no_date() -> None:
    source = parse_program("""
state %w: float32[2]
graph @g(%x: float32[2]) {
  %write = Assign(%w, %x, umonad)
  %a = Neg(%write) : float32[2]
  %b = Neg(%write) : float32[2]
  %t = UpdateState(umonad, %a, %b)
  %all = MakeTuple(%a, %b)
  %r = Depend(%all, %t)
  return %r
}""")
    found = bc.compile(source, "common-subexpression-elimination").graphs["g"]
    assert sum(node.op.name == "Neg" for node in found) == 2
