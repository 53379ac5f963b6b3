"""The memory of a session: what counts once, what counts for each graph, what is shared."""

from __future__ import annotations

from boost_compile.ir.analysis.cost.footprint import ENGINE, GENERATED, NODE, PRIMITIVE, footprint
from boost_compile.ir.core.graph import Graph
from boost_compile.ir.text import parse_program


def step(body: str) -> Graph:
    return parse_program(f"graph @step(%x: float32[256]) {{\n{body}\n}}\n").graphs["step"]


def test_graphs_share_one_pool_and_keep_what_is_theirs() -> None:
    """Each tensor has 1024 bytes. The first graph holds two values at once, the second three and a constant."""
    two = step("%a = Exp(%x)\n%b = Neg(%a)\nreturn %b")
    three = step("%a = Exp(%x)\n%b = Neg(%x)\n%c = Mul(%a, %b)\n%d = Div(%c, float32[]<2.0>)\nreturn %d")
    both = footprint((two, three), state=5000, cores=2)
    assert (both.state, both.pool, both.constants) == (5000, (3 + 2 * 1) * 1024, 4)
    assert both.kernels == 16 * 256
    assert both.engine == ENGINE + 6 * NODE + 4 * PRIMITIVE
    assert both.total == both.state + both.pool + both.constants + both.kernels + both.engine
    assert footprint((two,), state=5000, cores=2).pool == (2 + 2 * 1) * 1024


def test_what_no_kernel_computes_costs_no_code() -> None:
    plain = step("%a = Exp(%x)\nreturn %a")
    viewed = step("%a = Exp(%x)\n%v = Reshape(%a, (16, 16)) : float32[16,16]\nreturn %v")
    assert footprint((viewed,), 0, 1).total == footprint((plain,), 0, 1).total + NODE


def test_the_first_convolution_costs_the_code_that_is_generated() -> None:
    one = (
        "%a = Reshape(%x, (1, 1, 16, 16)) : float32[1,1,16,16]\n"
        "%w = Slice(%a, (0, 0, 0, 0), (1, 1, 3, 3)) : float32[1,1,3,3]\n"
    )
    images = [
        step(
            one
            + "".join(f"%r{i} = Conv2D(%a, %w) {{pad_mode = 1}} : float32[1,1,16,16]\n" for i in range(count))
            + f"return {result}"
        )
        for count, result in ((0, "%w"), (1, "%r0"), (2, "%r1"))
    ]
    none, first, second = (footprint((graph,), 0, 1).engine for graph in images)
    assert (first - none, second - first) == (NODE + PRIMITIVE + GENERATED, NODE)
