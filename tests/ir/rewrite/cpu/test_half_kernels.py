"""A graph in half precision as MindSpore runs it on a CPU."""

from __future__ import annotations

from boost_compile.ir.core.program import Program
from boost_compile.ir.rewrite.cpu.half_kernels import with_casts
from boost_compile.ir.text import parse_program
from boost_compile.ir.verify.verifier import verify
from boost_compile.runtime.engine.footprint import footprint

from tests.graphs import graph, node

HALF = """
state %w: float32[4,4] role=weight
graph @step(%x: float16[4,4]) {
  %w0 = Load(%w, umonad)
  %h = Cast(%w0, 42) : float16[4,4]
  %p = MatMul(%x, %h, false, true) : float16[4,4]
  %t = Tanh(%p) : float16[4,4]
  %r = ReLU(%t) : float16[4,4]
  %q = MatMul(%r, %h, false, true) : float16[4,4]
  %n = NLLLoss(%q, %x, %x) : (float16[4,4], float16[])
  %m = TupleGetItem(%n, 0) : float16[4,4]
  %g = TanhGrad(%m, %m) : float16[4,4]
  %z = Add(%g, %x) : float16[4,4]
  return %z
}"""


def test_what_has_no_half_kernel_computes_in_float32_and_casts_stand_around_it() -> None:
    """ReLU and Add have kernels of half precision. The weight is cast back for each product."""
    made = with_casts(graph(HALF))
    verify(made)
    assert {n.name for n in made if str(n.type).startswith("float32")} >= {"p", "t", "q", "m", "g"}
    assert [str(node(made, name).type) for name in "hrz"] == ["float16[4,4]"] * 3
    taken = {name: [v.name for v in node(made, name).operands[:2]] for name in "ptg"}
    assert taken["t"] == ["p"]
    assert taken["g"] == ["m", "m"]
    back = [n for n in made if n.op.name == "Cast" and n.operand(0).name == "h"]
    assert {use.name for cast in back for use in cast.uses} == {"p", "q"}
    assert len(back) == 2
    assert node(made, "r").operand(0).operand(0).name == "t"  # type: ignore[attr-defined]
    assert str(node(made, "r").operand(0).type) == "float16[4,4]"


def test_a_value_that_is_waited_with_is_cast_where_it_is_taken() -> None:
    """What waits in front of the cast is float32, so it is this that memory holds until then."""
    made = with_casts(
        graph(
            "  %h = Cast(%x, 42) : float16[2]\n  %t = Tanh(%h) : float16[2]\n  %e = ReLU(%h) : float16[2]\n"
            "  %d = Depend(%t, %e)\n  %r = ReLU(%d) : float16[2]\n  %s = TanhGrad(%d, %r) : float16[2]\n  return %s"
        )
    )
    verify(made)
    (narrow,) = node(made, "r").operands
    assert (str(narrow.type), narrow.operand(0).name) == ("float16[2]", "d")  # type: ignore[attr-defined]
    assert [str(node(made, name).type) for name in "td"] == ["float32[2]"] * 2
    assert node(made, "s").operand(0).name == "d"
    assert [v.name for v in node(made, "d").operands] == ["t", "e"]


def test_a_graph_in_float32_stays_as_it_is() -> None:
    source = graph(HALF.replace("float16", "float32").replace(", 42)", ", 43)"))
    assert with_casts(source) is source


def test_half_precision_is_estimated_as_what_a_cpu_computes_in() -> None:
    """A chain of products and Tanhs keeps its values in float32 for its gradients."""

    def program(dtype: str) -> Program:
        lines, value = [], "%x"
        for k in range(8):
            lines += [
                f"%p{k} = MatMul({value}, %x, false, true) : {dtype}[512,512]",
                f"%t{k} = Tanh(%p{k}) : {dtype}[512,512]",
            ]
            value = f"%t{k}"
        for k in reversed(range(8)):
            lines.append(f"%g{k} = TanhGrad(%t{k}, {value}) : {dtype}[512,512]")
            value = f"%g{k}"
        lines.append(f"return {value}")
        return parse_program(f"graph @net(%x: {dtype}[512,512]) {{\n" + "\n".join(lines) + "\n}\n")

    half, single = (footprint(program(dtype), 2).pool for dtype in ("float16", "float32"))
    assert half > 0.9 * single
