"""Seeds: where a factor must be multiplied so that every gradient comes out multiplied.

In graphs that are written by hand. test_linearity_by_execution.py has whole networks.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from boost_compile.ir.analysis.derivative.linearity import Seed, find_seeds, late_seeds
from boost_compile.ir.analysis.training.network import BACKWARD, FORWARD, network_parts
from boost_compile.ir.core.errors import AnatomyError
from boost_compile.ir.core.graph import Graph, Node, tensor_type
from boost_compile.ir.core.types import DType, TensorType
from boost_compile.ir.rewrite.scale_seeds import scale_seeds
from boost_compile.ir.text import parse_graph, parse_program
from boost_compile.ir.verify.verifier import verify

from tests.linear_cost import assert_linear

# -- hand-written graphs ---------------------------------------------------------------------------------------


def read(text: str) -> tuple[Graph, dict[Node, str], dict[str, Node]]:
    """A graph, its parts and its nodes by name. A node called ``b1.x`` is of the derivative of forward node 1, ``b.x``
    is backward without saying of what, ``f.x`` forward."""
    graph = parse_graph(text)
    parts: dict[Node, str] = {}
    nodes: dict[str, Node] = {}
    for body in graph.all_graphs():
        for node in body:
            nodes[node.name] = node
            match = re.match(r"([bf])(\d*)\.", node.name)
            if match:
                parts[node] = BACKWARD if match[1] == "b" else FORWARD
                key = "forward_unique_id" if match[1] == "b" else "unique_id"
                node.primal = {key: match[2]} if match[2] else {}
    return graph, parts, nodes


def seeds_of(text: str, *wanted: str, assume_linear: tuple[str, ...] = ()) -> dict[str, list[tuple[str, int]]]:
    """By name, where ``wanted`` are nodes all of whose operands are."""
    graph, parts, nodes = read(text)
    uses = [(nodes[name], i) for name in wanted for i in range(nodes[name].num_operands)]
    found = find_seeds(graph, parts, uses, assume_linear=assume_linear)
    return {s.value.name: [(user.name, i) for user, i in s.uses] for s in found}


def step(*lines: str, result: str = "%out") -> str:
    """A graph with a true derivative ``b1.d``, a weight ``w`` and these lines."""
    body = "\n".join(f"  {line}" for line in lines)
    return f"""graph @step(%x: float32[2,2], %w: float32[2,2], %y: int32[2]) {{
  %f1.h = MatMul(%x, %w, false, false) : float32[2,2]
  %b1.d = SparseSoftmaxCrossEntropyWithLogits(%f1.h, %y) : float32[2,2]
{body}
  return {result}
}}
"""


def test_a_product_is_multiplied_in_the_factor_that_carries_the_derivative() -> None:
    lines = "%b2.c = Square(%f1.h)", "%b2.g = Mul(%b2.c, %b1.d)", "%out = Neg(%b2.g)"
    assert seeds_of(step(*lines), "out") == {"b1.d": [("b2.g", 1)]}


def test_a_sum_is_multiplied_in_all_terms_that_are_not_zero() -> None:
    lines = (
        "%b.zero = ZerosLike(%f1.h)",
        "%b.terms = MakeTuple(%b1.d, %x, %b.zero, float32[2,2]<0, 0, 0, 0>)",
        "%b.sum = AddN(%b.terms)",
        "%out = Neg(%b.sum)",
    )
    assert seeds_of(step(*lines), "out") == {"b1.d": [("b.terms", 0)], "x": [("b.terms", 1)]}


def test_only_the_uses_that_want_it_are_multiplied() -> None:
    """%b2.g also goes to the result as it is, and only one of two users of %b1.d is a gradient."""
    lines = (
        "%b2.g = MatMul(%b1.d, %x, true, false) : float32[2,2]",
        "%b3.k = Neg(%b2.g)",
        "%wanted = Neg(%b2.g)",
        "%out = Add(%wanted, %b3.k)",
    )
    assert seeds_of(step(*lines), "wanted") == {"b2.g": [("wanted", 0)]}


def test_one_value_many_uses() -> None:
    lines = (
        "%b2.a = Neg(%b1.d)",
        "%b2.b = Mul(%b1.d, %x)",
        "%b2.shape = ZerosLike(%b1.d)",
        "%b.order = Depend(%x, %b1.d)",
        "%out = AddN(%b2.a, %b2.b, %b2.shape, %b.order) : float32[2,2]",
    )
    graph, parts, nodes = read(step(*lines))
    (seed,) = find_seeds(graph, parts, [(nodes["out"], 0), (nodes["out"], 1)])
    assert seed.value is nodes["b1.d"]
    assert {(user.name, i) for user, i in seed.uses} == {("b2.a", 0), ("b2.b", 0)}


def test_what_nothing_is_made_of_does_not_stand_in_the_way() -> None:
    """%b9.unused is not linear in the derivative, and neither the result nor an effect needs it."""
    lines = "%b2.g = Mul(%b1.d, %x)", "%b9.unused = Exp(%b1.d)", "%out = Neg(%b2.g)"
    assert seeds_of(step(*lines), "out") == {"b1.d": [("b2.g", 0)]}


SIZES = """%b2.sizes = ShapeCalc(%b1.d, %x) {only_depend_shape = (FIRST, true)} : ((int64)!, (int64)!)!
  %b2.axes = TupleGetItem(%b2.sizes, 0)"""


def test_sizes_and_axes_carry_no_derivative() -> None:
    """Of the operands whose shape alone it takes ShapeCalc looks at no element, so its result is a coefficient."""
    lines = (SIZES.replace("FIRST", "true"), "%out = ReduceSum(%b1.d, %b2.axes, false, false) : float32[2,2]")
    assert seeds_of(step(*lines), "out") == {"b1.d": [("out", 0)]}


def test_axes_made_of_the_elements_of_the_derivative_are_refused() -> None:
    lines = (SIZES.replace("FIRST", "false"), "%b2.g = ReduceSum(%b1.d, %b2.axes, false, false) : float32[2,2]")
    with pytest.raises(AnatomyError, match="it is not linear in operand 1"):
        seeds_of(step(*lines, "%out = Neg(%b2.g)"), "out")


def test_a_tuple_of_which_only_some_elements_are_wanted() -> None:
    lines = (
        "%b2.n = BatchNormGrad(%b1.d, %x) : (float32[2,2], float32[2])",
        "%b2.dx = TupleGetItem(%b2.n, 0)",
        "%b2.dg = TupleGetItem(%b2.n, 1)",
        "%wanted = Neg(%b2.dx)",
        "%other = Neg(%b2.dg)",
        "%out = MakeTuple(%wanted, %other)",
    )
    assert seeds_of(step(*lines), "wanted") == {"b2.dx": [("wanted", 0)]}
    assert seeds_of(step(*lines), "wanted", "other") == {"b1.d": [("b2.n", 0)]}


def test_a_derivative_inside_the_network_is_a_coefficient() -> None:
    """A gradient penalty: the forward part needs %b9.g and %b9.k, so the derivative of the loss begins with %b1.d."""
    text = """graph @step(%x: float32[2], %w: float32[2]) {
  %f9.h = Mul(%x, %w)
  %b9.g = Mul(float32[2]<1, 1>, %w)
  %b9.k = Mul(%b9.g, %x)
  %f1.loss = Square(%b9.k)
  %b1.d = Mul(%b9.k, float32[]<2.0>)
  %b2.dw = Mul(%b9.g, %b1.d)
  %out = Neg(%b2.dw)
  %both = MakeTuple(%out, %f1.loss)
  return %both
}
"""
    assert seeds_of(text, "out") == {"b9.k": [("b1.d", 0)]}


def test_a_coefficient_that_the_loss_shares_with_another_derivative() -> None:
    """%b3.c was computed for both, and kept once: that the loss takes it makes it no derivative."""
    lines = "%b3.c = Square(%x)", "%b2.e = Loss(%b3.c) : float32[2,2]", "%b3.g = Mul(%b3.c, %b2.e)", "%out = Neg(%b3.g)"
    assert seeds_of(step(*lines), "out") == {"b2.e": [("b3.g", 1)]}


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("%b.g = Sign(%b1.d)", "Sign is not known to be linear"),
        ("%b.g = Square(%b1.d)", "Square is not known to be linear"),
        ("%b.g = Exp(%b1.d)", "Exp is not known to be linear"),
        ("%b.g = Clip(%b1.d) : float32[2,2]", "Clip is not known to be linear"),
        ("%b.g = RealDiv(%x, %b1.d)", "not linear in operand 1"),
        ("%b.g = AddScalar(%b1.d, 1.0) : float32[2,2]", "its operand 1"),
        ('%b.g = AllReduce(%b1.d) {op = "max"} : float32[2,2]', "AllReduce is not known to be linear"),
        ("%b.g = LSTMGradWeight(%x) : float32[2,2]", "workspace"),
    ],
)
def test_what_is_not_linear_is_refused(line: str, why: str) -> None:
    with pytest.raises(AnatomyError) as caught:
        seeds_of(step(line, "%out = Neg(%b.g)"), "out")
    message = str(caught.value)
    assert why in message
    assert "graph 'step'" in message
    assert "passes through %b.g (" in message
    assert "assume_linear" in message


@pytest.mark.parametrize(
    "lines",
    [
        ("%b.n = Square(%b1.d)", "%b.g = RealDiv(%b1.d, %b.n)"),  # its own length
        ("%b.n = Neg(%b1.d)", "%b.m = Muls(%b1.d, 2) : float32[2,2]", "%b.g = Mul(%b.n, %b.m)"),  # its square
        ("%b.n = Less(%b1.d, %x)", "%b.g = Select(%b.n, %b1.d, %x)"),  # clipping
        ("%b.n = Less(%b1.d, %x)", "%b.g = Cast(%b.n, 43) : float32[2,2]"),
    ],
)
def test_the_derivative_met_twice_is_refused(lines: tuple[str, ...]) -> None:
    with pytest.raises(AnatomyError, match=r"passes through .*%b\.g\b"):
        seeds_of(step(*lines, "%out = Neg(%b.g)"), "out")


def test_scope_is_named() -> None:
    graph, parts, nodes = read(step("%b.g = Sign(%b1.d)", "%out = Neg(%b.g)"))
    nodes["b.g"].scope = "Default/my-Layer/Sign-op0"
    with pytest.raises(AnatomyError, match=r"passes through Sign in Default/my-Layer/Sign-op0 \(%b\.g\)"):
        find_seeds(graph, parts, [(nodes["out"], 0)])


def test_what_the_user_asserts_is_believed() -> None:
    text = step("%b.g = MyBackward(%x, %b1.d) : float32[2,2]", "%out = Neg(%b.g)")
    with pytest.raises(AnatomyError, match=r"assume_linear=\[MyBackward\]"):
        seeds_of(text, "out")
    with pytest.raises(AnatomyError):
        seeds_of(text, "out", assume_linear=("Other",))
    assert seeds_of(text, "out", assume_linear=("MyBackward",)) == {"b1.d": [("b.g", 1)]}


def test_an_unknown_primitive_at_the_loss_is_a_seed() -> None:
    """It takes no derivative: nothing is asserted of it."""
    text = step("%b5.e = MyLossBackward(%f1.h, %x) : float32[2,2]", "%b6.g = Neg(%b5.e)", "%out = Add(%b6.g, %b1.d)")
    assert seeds_of(text, "out") == {"b5.e": [("b6.g", 0)], "b1.d": [("out", 1)]}


def test_an_operand_written_in_place_cannot_be_multiplied() -> None:
    text = step(
        "%b2.buffer = Neg(%x)",
        "%b2.g = InplaceAddExt(%b2.buffer, %b1.d) {side_effect_mem = true} : float32[2,2]@b2.buffer",
        "%out = Neg(%b2.g)",
    )
    with pytest.raises(AnatomyError, match="writes its operand 0 in place"):
        seeds_of(text, "out")


# -- functions -------------------------------------------------------------------------------------------------


def calling(body: str, *lines: str) -> str:
    """``step`` with a function ``@back(%c, %d)``."""
    text = step(*lines)
    return text[: text.rindex("}")] + f"\n  func @back(%c: float32[2,2], %d: float32[2,2]) {{\n{body}\n  }}\n}}\n"


LINEAR_BODY = "    %b2.p = Mul(%c, %d)\n    return %b2.p"


def test_the_derivative_passes_a_call() -> None:
    text = calling(LINEAR_BODY, "%b.g = call(@back, %f1.h, %b1.d) : float32[2,2]", "%out = Neg(%b.g)")
    assert seeds_of(text, "out") == {"b1.d": [("b.g", 2)]}


def test_and_a_closure_that_a_switch_chooses() -> None:
    lines = (
        "%b.one = Partial(@back, %f1.h)",
        "%b.two = Partial(@back, %x)",
        "%b.chosen = Switch(%go, %b.one, %b.two)",
        "%b.g = call(%b.chosen, %b1.d) : float32[2,2]",
        "%out = Neg(%b.g)",
    )
    text = calling(LINEAR_BODY, *lines).replace("%y: int32[2]", "%y: int32[2], %go: bool[]")
    assert seeds_of(text, "out") == {"b1.d": [("b.g", 1)]}


def test_a_function_of_which_one_call_is_wanted_is_multiplied_behind_it() -> None:
    lines = (
        "%b.g = call(@back, %f1.h, %b1.d) : float32[2,2]",
        "%b.k = call(@back, %x, %b1.d) : float32[2,2]",
        "%wanted = Neg(%b.g)",
        "%out = Add(%wanted, %b.k)",
    )
    assert seeds_of(calling(LINEAR_BODY, *lines), "wanted") == {"b.g": [("wanted", 0)]}


def test_a_seed_inside_a_function_is_multiplied_behind_its_calls() -> None:
    body = "    %b2.p = MyLossBackward(%c) : float32[2,2]\n    %b3.q = Add(%b2.p, %d)\n    return %b3.q"
    text = calling(body, "%b.g = call(@back, %f1.h, %b1.d) : float32[2,2]", "%out = Neg(%b.g)")
    assert seeds_of(text, "out") == {"b.g": [("out", 0)]}


PAIR = "    %b2.p = Mul(%c, %d)\n    %b2.q = Neg(%d)\n    %b.t = MakeTuple(%b2.p, %b2.q)\n    return %b.t"
TAKEN = (
    "%b.g = call(@back, %f1.h, %b1.d) : (float32[2,2], float32[2,2])",
    "%b.p = TupleGetItem(%b.g, 0)",
    "%b.q = TupleGetItem(%b.g, 1)",
)


def test_a_function_with_two_results() -> None:
    assert seeds_of(calling(PAIR, *TAKEN, "%out = Add(%b.p, %b.q)"), "out") == {"b1.d": [("b.g", 2)]}
    alone = calling(PAIR, *TAKEN, "%out = Neg(%b.p)")
    assert seeds_of(alone, "out") == {"b1.d": [("b.g", 2)]}  # nothing takes the other


def test_a_function_of_which_one_result_goes_elsewhere_is_multiplied_behind_it() -> None:
    lines = (*TAKEN, "%wanted = Neg(%b.p)", "%out = Add(%wanted, %b.q)")
    assert seeds_of(calling(PAIR, *lines), "wanted") == {"b.p": [("wanted", 0)]}


def test_what_is_not_linear_inside_a_function_is_refused() -> None:
    body = "    %b2.p = Sign(%d)\n    return %b2.p"
    text = calling(body, "%b.g = call(@back, %f1.h, %b1.d) : float32[2,2]", "%out = Neg(%b.g)")
    with pytest.raises(AnatomyError, match=r"graph 'back': .* Sign is not known to be linear"):
        seeds_of(text, "out")


def test_a_gradient_inside_a_function_is_refused() -> None:
    body = "    %b2.p = Square(%c)\n    %taken = Neg(%b2.p)\n    return %taken"
    text = calling(body, "%b.g = call(@back, %f1.h, %b1.d) : float32[2,2]", "%out = Neg(%b.g)")
    with pytest.raises(AnatomyError, match="computed inside function 'back'"):
        seeds_of(text, "taken")


def test_recursion() -> None:
    """@back calls itself with the derivative; the condition is a forward value."""
    body = """    %b.stop = Partial(@end, %d)
    %b.more = Partial(@again, %c, %d)
    %b.chosen = Switch(%go, %b.stop, %b.more)
    %b.r = call(%b.chosen) : float32[2,2]
    return %b.r
  }

  func @end(%e: float32[2,2]) {
    %b3.n = Neg(%e)
    return %b3.n
  }

  func @again(%c2: float32[2,2], %d2: float32[2,2], %go2: bool[]) {
    %b4.m = Mul(%c2, %d2)
    %b.s = call(@back, %c2, %b4.m, %go2) : float32[2,2]
    %b4.t = Add(%b.s, %b4.m)
    return %b4.t"""
    body = body.replace("Partial(@again, %c, %d)", "Partial(@again, %c, %d, %go)")
    text = calling(body, "%b.g = call(@back, %f1.h, %b1.d, %go) : float32[2,2]", "%out = Neg(%b.g)")
    text = text.replace("%y: int32[2]", "%y: int32[2], %go: bool[]")
    text = text.replace(
        "@back(%c: float32[2,2], %d: float32[2,2])", "@back(%c: float32[2,2], %d: float32[2,2], %go: bool[])"
    )
    assert seeds_of(text, "out") == {"b1.d": [("b.g", 2)]}
    nonlinear = text.replace("%b3.n = Neg(%e)", "%b3.n = Sign(%e)")
    with pytest.raises(AnatomyError, match=r"graph 'end': .* Sign is not known to be linear"):
        seeds_of(nonlinear, "out")


def test_a_call_that_cannot_be_followed_is_refused() -> None:
    text = calling(
        LINEAR_BODY,
        "%b.which = Fetch(%y) : fn<@back>",
        "%b.g = call(%b.which, %f1.h, %b1.d) : float32[2,2]",
        "%out = Neg(%b.g)",
    )
    with pytest.raises(AnatomyError, match="which functions that reaches cannot be told"):
        seeds_of(text, "out")


# -- multiplying -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_the_product_is_formed_in_a_type_that_holds_the_factor(dtype: str) -> None:
    graph = parse_graph(f"graph @g(%x: {dtype}[2], %s: float32[]) {{\n %a = Neg(%x)\n %b = Neg(%a)\n return %b\n}}")
    a, b = graph
    (mul,) = scale_seeds(graph, [Seed(a, [(b, 0)])], graph.inputs[1], scope="scaling")
    wide = "float64" if dtype == "float64" else "float32"
    assert [str(tensor_type(v).dtype) for v in mul.operands] == [wide, wide]
    assert tensor_type(b.operand(0)) == TensorType(DType(dtype), (2,))
    assert len(list(graph)) == {"float32": 3, "float64": 4}.get(dtype, 5)
    assert {n.scope for n in graph if n not in (a, b)} == {"scaling"}
    verify(graph)


def test_a_factor_that_stands_behind_a_seed_is_moved() -> None:
    graph = parse_graph(
        "graph @g(%x: float32[2], %t: float32[]) {\n %a = Neg(%x)\n %b = Neg(%a)\n %s = Neg(%t)\n return %b\n}"
    )
    a, b, s = graph
    scale_seeds(graph, [Seed(a, [(b, 0)]), Seed(graph.inputs[0], [(a, 0)])], s, scope="")
    verify(graph)
    order = list(graph)
    assert order.index(s) < order.index(b)


# -- cost ------------------------------------------------------------------------------------------------------


def deep(n: int) -> list[str]:
    """n products one after the other, each of a group of its own."""
    lines = [f"%b{k + 2}.p = Mul({'%b1.d' if k == 0 else f'%b{k + 1}.p'}, %x)" for k in range(n)]
    return [*lines, f"%out = Neg(%b{n + 1}.p)"]


def wide(n: int) -> list[str]:
    """A sum of n terms that all come from one value."""
    lines = [f"%b{k + 2}.p = Neg(%b1.d)" for k in range(n)]
    terms = ", ".join(f"%b{k + 2}.p" for k in range(n))
    return [*lines, f"%b.t = MakeTuple({terms})", "%b.s = AddN(%b.t)", "%out = Neg(%b.s)"]


def taken_apart(n: int) -> list[str]:
    """A node with n results, all of them summed."""
    types = ", ".join(["float32[2,2]"] * n)
    lines = [f"%b2.all = Split(%b1.d) : ({types})", *(f"%b2.i{k} = TupleGetItem(%b2.all, {k})" for k in range(n))]
    return [*lines, f"%b.s = AddN({', '.join(f'%b2.i{k}' for k in range(n))})", "%out = Neg(%b.s)"]


def in_parts(n: int) -> list[str]:
    """n gradients of which every second is wanted: n/2 uses of one value are multiplied by themselves."""
    lines = [f"%b{k + 2}.p = Neg(%b1.d)" for k in range(n)]
    lines += [f"%w{k} = Neg(%b{k + 2}.p)" for k in range(n)]
    wanted = ", ".join(f"%w{k}" for k in range(0, n, 2))
    rest = ", ".join(f"%w{k}" for k in range(1, n, 2))
    return [*lines, f"%out = AddN({wanted})", f"%rest = AddN({rest})", "%both = MakeTuple(%out, %rest)"]


@pytest.mark.parametrize("shape", [deep, wide, taken_apart, in_parts])
def test_cost_is_linear(shape: Callable[[int], list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    def prepare(n: int) -> Callable[[], object]:
        lines = shape(n)
        graph, parts, nodes = read(step(*lines, result="%both" if shape is in_parts else "%out"))
        wanted = [(nodes["out"], i) for i in range(nodes["out"].num_operands)]
        seeds = find_seeds(graph, parts, wanted)
        assert seeds[0].value is nodes["b1.d"]
        return lambda: find_seeds(graph, parts, wanted)

    assert_linear(monkeypatch, prepare, (200, 400, 800))


IMPLICIT = """state %w: float32[2]
graph @step(%x: float32[2]) {
  %w0 = Load(%w, umonad) : float32[2] primal {unique_id = "1"}
  %z = Mul(%w0, %x) : float32[2] primal {unique_id = "2"}
  %loss = ReduceSum(%z, (), false, false) : float32[] primal {unique_id = "3"}
  %ones = OnesLike(%z) : float32[2] primal {forward_unique_id = "3"}
  %gz = Mul(%ones, %x) : float32[2] primal {forward_unique_id = "2"}
  %turned = Exp(%w0) : float32[2] primal {unique_id = "4"}
  %vjp = Mul(%gz, %turned) : float32[2] primal {forward_unique_id = "4"}
  %sum = Add(%gz, %vjp)
  %more = Sin(%x) : float32[2] primal {unique_id = "5"}
  %dw = Mul(%sum, %more) : float32[2] primal {forward_unique_id = "5"}
  %new = AssignSub(%w, %dw, umonad) : float32[2]
  %t = UpdateState(umonad, %new)
  %result = Depend(LOSS, %t)
  return %result
}"""


@pytest.mark.parametrize(("loss", "late"), [("%loss", True), ("%penalty", False)])
def test_a_gradient_that_the_cell_goes_on_computing_with_is_multiplied_late(loss: str, late: bool) -> None:
    """As in an equilibrium model. A loss that depends on the gradient (a penalty) has it for a coefficient."""
    penalty = '  %penalty = ReduceSum(%sum, (), false, false) : float32[] primal {unique_id = "6"}\n  %new = '
    (graph,) = parse_program(IMPLICIT.replace("LOSS", loss).replace("  %new = ", penalty)).graphs.values()
    parts = network_parts(graph)
    (dw,) = (node for node in graph if node.name == "new")
    seeds = find_seeds(graph, parts, [(dw, 1)])
    (result,) = (node for node in graph if node.name == loss[1:])
    assert bool(late_seeds(graph, parts, seeds, [result])) == late
