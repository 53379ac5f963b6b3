"""Half precision and back, node by node: which values are cast, and what of a node changes with its type."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from boost_compile.ir.analysis.training.network import network_parts
from boost_compile.ir.core.attributes import TensorValue, scalar_tensor
from boost_compile.ir.core.data import numbers
from boost_compile.ir.core.graph import Constant, Graph, Node, Value
from boost_compile.ir.core.names import DUPLICATED
from boost_compile.ir.core.types import DType, TupleType, tensor
from boost_compile.ir.core.walk import carried_operands, through
from boost_compile.ir.text import print_program
from boost_compile.ir.verify.verifier import verify
from boost_compile.passes.mixed_precision.narrow import Narrowing, halved, narrowable, overflows
from boost_compile.passes.mixed_precision.widen import is_half, widen, widened

from tests.graphs import graph, node, program

F16, BF16 = DType.FLOAT16, DType.BFLOAT16


def narrowed(body: str, *half: str, dtype: DType = F16, rounds: bool = False, late: bool = False) -> Graph:
    """The graph with the named nodes in half precision."""
    made = graph(body)
    nodes = [node(made, name) for name in half]
    narrowing = Narrowing(made, nodes, network_parts(made), dtype, rounds=rounds, late=late)
    narrowing.run()
    made.sort()
    verify(made)
    assert narrowing.casts == sum(n.op.name == "Cast" and n.name.startswith("Cast") for n in made)
    return made


def types(made: Graph, name: str) -> list[str]:
    """Of the operands of a node, and of its result."""
    found = node(made, name)
    return [str(v.type) for v in (*found.operands, found)]


def test_a_value_is_cast_once_for_all_that_take_it_in_a_type() -> None:
    made = narrowed(
        "state %w: float32[2]\n  %l = Load(%w, umonad) @f\n  %a = Mul(%l, %x) @f\n  %b = Mul(%l, %a) @f\n"
        "  %c = Mul(%a, %l) @f\n  %d = Mul(%a, %a) @f\n  %r = Add(%c, %d) @f\n  return %r",
        "a", "b", "r",
    )  # fmt: skip
    assert types(made, "a") == types(made, "b") == types(made, "r") == ["float16[2]"] * 3
    assert types(made, "c") == types(made, "d") == ["float32[2]"] * 3
    casts = [(n.operand(0).name, str(n.type)) for n in made if n.op.name == "Cast"]
    assert sorted(casts) == [
        ("a", "float32[2]"), ("c", "float16[2]"), ("d", "float16[2]"), ("l", "float16[2]"), ("r", "float32[2]"),
        ("x", "float16[2]"),
    ]  # fmt: skip
    assert isinstance(made.result, Node)
    assert (made.result.op.name, str(made.result.type)) == ("Cast", "float32[2]")
    # Who looks for forward nodes finds the casts among them.
    assert all(n.primal.get("unique_id") for n in made if n.op.name == "Cast")


def test_a_constant_is_stored_in_half_precision() -> None:
    made = narrowed("  %a = Mul(%x, float32[2]<0.1, 3.0>) @f\n  %b = Add(%a, float32[]<2.0>) @f\n  return %b", "a")
    constant = node(made, "a").operand(1)
    assert isinstance(constant.literal, TensorValue)
    assert numbers(constant.literal.type, constant.literal.data).tolist() == np.float16([0.1, 3.0]).tolist()
    assert str(node(made, "b").operand(1).type) == "float32[]"


def test_a_tuple_is_of_the_type_that_its_takers_compute_in() -> None:
    body = "  %a = Neg(%x) @f\n  %b = Exp(%x) @f\n  %t = MakeTuple(%a, %b) @f\n  %s = AddN(%t) : float32[2] @f\n"
    alone = narrowed(body + "  return %s", "s")
    assert types(alone, "t") == ["float16[2]", "float16[2]", "(float16[2], float16[2])!"]
    mixed = narrowed(body + "  %o = AddN(%t) : float32[2] @f\n  %r = Add(%s, %o) @f\n  return %r", "a", "s")
    assert types(mixed, "s") == ["(float16[2], float16[2])!", "float16[2]"]
    assert types(mixed, "o") == ["(float32[2], float32[2])!", "float32[2]"]
    full = narrowed(body + "  return %s", "a", "b")
    assert types(full, "t") == ["float32[2]", "float32[2]", "(float32[2], float32[2])!"]


def test_who_only_waits_for_a_value_casts_nothing() -> None:
    """Neither a token nor a Depend makes a tuple or a value one that float32 takes."""
    made = narrowed(
        "  %a = Neg(%x) @f\n  %t = MakeTuple(%a, %a) @f\n  %s = AddN(%t) : float32[2] @f\n"
        "  %u = UpdateState(umonad, %t)\n  %w = Exp(%x) : float32[2] @f\n  %d = Depend(%w, %a)\n"
        "  %e = Depend(%d, %u)\n  %r = Add(%s, %e) @f\n  return %r",
        "a", "s", "r",
    )  # fmt: skip
    assert sorted(n.operand(0).name for n in made if n.op.name == "Cast") == ["e", "r", "x"]
    assert types(made, "s") == ["(float16[2], float16[2])!", "float16[2]"]


def test_who_waits_outside_of_the_network_passes_on_float32() -> None:
    made = narrowed("  %a = Neg(%x) @f\n  %b = Exp(%x) : float32[2] @f\n  %d = Depend(%a, %b)\n  return %d", "a", "b")
    assert types(made, "d") == ["float32[2]", "float16[2]", "float32[2]"]


def taken(made: Graph, name: str) -> list[str]:
    """What a node takes: a value by its name, a cast as "name cast", one behind a gradient as "name after gradient"."""

    def told(value: Value) -> str:
        if not isinstance(value, Node) or value.op.name != "Cast":
            return value.name
        source = value.operand(0)
        if not isinstance(source, Node) or source.op.name != "Depend":
            return f"{source.name} cast"
        assert DUPLICATED in value.marks
        (gradient,) = carried_operands(source.operand(1))
        return f"{source.operand(0).name} after {gradient.name}"

    return [told(value) for value in node(made, name).operands]


FORTH = """
state %w: float32[2]
  %w0 = Load(%w, umonad) @f
  %a = Mul(%x, %w0) @f
  %v = Reshape(%a, (2,)) : float32[2] @f
  %e = Exp(%v) @f
  %l = OnesLike(%e) @b
  %g = Neg(%l) @b
"""


def test_the_backward_part_widens_again_what_the_forward_part_keeps_in_half_precision() -> None:
    """Once for all that take it, behind the gradient of the first; what takes no gradient shares the forward cast."""
    back = "  %p = Mul(%v, %g) @b\n  %q = Div(%p, %v) @b\n  %n = Neg(%v) @b\n  %r = Add(%q, %n) @b\n  return %r"
    made = narrowed(FORTH + back, "a", "v")
    assert (taken(made, "p"), taken(made, "q")) == (["v after g", "g"], ["p", "v after g"])
    assert (taken(made, "e"), taken(made, "n")) == (["v cast"], ["v cast"])
    assert str(node(made, "v").type) == "float16[2]"
    made = narrowed(FORTH + back, "a", "v", late=True)
    assert (taken(made, "e"), taken(made, "n")) == (["v cast"], ["v after g"])


def test_the_backward_part_narrows_again_what_is_there_in_float32() -> None:
    """An input, or a value that it also takes in float32, through a view too; a weight is cast once for both."""
    back = "  %h = Mul(%g, %x) @b\n  %i = Mul(%h, %v) @b\n  %j = Mul(%i, %w0) @b\n"
    alone = narrowed(FORTH + back + "  return %j", "e", "h", "i", "j")
    assert [taken(alone, name)[1] for name in "hij"] == ["x after g", "v cast", "w0 cast"]
    kept = narrowed(FORTH + back + "  %k = Mul(%j, %a) @b\n  return %k", "e", "h", "i", "j")
    assert [taken(kept, name)[1] for name in "hijk"] == ["x after g", "v after h", "w0 cast", "a"]
    assert taken(kept, "e") == ["v cast"]


def test_the_backward_part_takes_half_values_as_a_cast_rounded_them() -> None:
    """Once for all that take it, each behind its own gradient: a result, a view of a cast, what is widened again. What
    takes no gradient waits for that of its user. A weight is as without it."""
    back = (
        "  %h = Mul(%g, %e) @b\n  %i = Mul(%h, %e) @b\n  %j = Mul(%i, %v) @b\n  %k = Mul(%j, %w0) @b\n"
        "  %n = Mul(%v, %v) @b\n  %m = Mul(%k, %n) @b\n  %r = Mul(%m, %e) @b\n  return %r"
    )
    made = narrowed(FORTH + back, "v", "e", *"lghijknm", rounds=True)

    def told(name: str) -> list[str]:
        """Of each value that is waited with: what it was rounded from, through which types, behind what."""
        found = []
        for value in node(made, name).operands:
            waits = value.operand(0) if isinstance(value, Node) and value.op.name == "Cast" else value
            if isinstance(waits, Node) and waits.op.name == "Depend":
                (gradient,) = carried_operands(waits.operand(1))
                rounded = waits.operand(0)
                assert isinstance(rounded, Node)
                wide = through(rounded.operand(0), ("Depend",))
                assert isinstance(wide, Node)
                assert [str(v.type) for v in (rounded, wide, wide.operand(0))] == [
                    "float16[2]", "float32[2]", "float16[2]"
                ]  # fmt: skip
                found.append(f"{wide.operand(0).name} after {gradient.name}: {rounded.name}")
        return found

    (first,), (second,), (view,), (wide,) = map(told, "hijr")
    assert [text.partition(":")[0] for text in (first, second, view, wide)] == [
        "e after g", "e after h", "v after i", "e after m"
    ]  # fmt: skip
    assert len({text.partition(": ")[2] for text in (first, second, wide)}) == 1
    assert told("k") == []
    assert [text.partition(":")[0] for text in told("n")] == ["v after k", "v after k"]


def test_a_value_in_several_shapes_is_kept_rounded_once() -> None:
    back = (
        "  %s = Reshape(%e, (1, 2)) : float32[1,2] @f\n  %h = Mul(%g, %e) @b\n  %j = Mul(%h, %s) @b\n"
        "  %k = Mul(%j, %s) @b\n  return %k"
    )
    made = narrowed(FORTH + back, "v", *"elgshjk", rounds=True)
    assert sum(n.name.startswith("Cast") and n.operand(0).name == "e" for n in made) == 1
    flat, first, second = (through(node(made, name).operand(1), ("Depend",)) for name in "hjk")
    assert first is second
    assert isinstance(first, Node)
    assert (first.op.name, str(first.type), first.operand(0)) == ("Reshape", "float16[1,2]", flat)


def test_what_is_put_off_waits_in_float32_too() -> None:
    back = "  %m = Equal(%x, %v) @b\n  %c = Cast(%m, 43) : float32[2] @b\n  %r = Mul(%g, %c) @b\n  return %r"
    made = narrowed(FORTH + back, "l", "g", rounds=True)
    waits = node(made, "m").operand(1)
    assert isinstance(waits, Node)
    assert (waits.op.name, waits.operand(0).name) == ("Depend", "v")
    assert [v.name for v in carried_operands(waits.operand(1))] == ["g"]
    assert [node(made, "m").operand(0).name, node(made, "c").operand(0).name] == ["x", "m"]


def test_a_function_has_no_inputs_that_are_there_anyway() -> None:
    made = narrowed(
        "  %r = call(@back, %x) : float32[2] @b\n  return %r\n"
        "  func @back(%y: float32[2]) {\n    %g = Neg(%y) @b\n    %m = Mul(%g, %y) @b\n    return %m\n  }",
        "m",
    )  # fmt: skip
    (function,) = made.functions.values()
    Narrowing(function, [node(made, "m")], network_parts(made), F16).run()
    assert taken(made, "m") == ["g cast", "y cast"]


def test_an_element_has_the_type_that_it_has_in_its_tuple() -> None:
    made = narrowed(
        "  %n = LayerNorm(%x, float32[2]<zeros>, float32[2]<zeros>) {begin_norm_axis=0, begin_params_axis=0, "
        "epsilon=1e-5} : (float32[2], float32[1], float32[1]) @f\n  %y = TupleGetItem(%n, 0) @f\n"
        "  %m = TupleGetItem(%n, 1) @f\n  %last = TupleGetItem(%n, -3) @f\n  %o = Add(%y, %last) @f\n"
        "  %r = Mul(%o, %m) : float32[2] @f\n  return %r",
        "n",
    )
    assert [str(node(made, name).type) for name in ("y", "m", "last")] == ["float16[2]", "float32[1]", "float16[2]"]
    assert types(made, "r") == ["float32[2]", "float32[1]", "float32[2]"]


def test_what_is_written_in_place_keeps_its_mark_of_an_alias() -> None:
    made = narrowed(
        "  %s = Square(%x) : float32[2]@s @f\n  %w = AssignAdd(%s, %x, umonad) : float32[2]@s @f\n  %r = Neg(%w) @f\n"
        "  return %r",
        "w",
    )
    assert types(made, "w") == ["float16[2]@s", "float16[2]", "umonad", "float16[2]@s"]
    assert str(node(made, "s").type) == "float32[2]"


def test_the_type_that_a_node_names_is_half_precision_too() -> None:
    made = narrowed(
        "  %b = Greater(%x, %x) @f\n  %c = Cast(%b, 43) : float32[2] @f\n  %r = Neg(%c) @f\n  return %r", "c"
    )
    assert node(made, "c").operand(1).literal == 42
    assert str(node(made, "c").type) == "float16[2]"


def test_the_gradient_of_a_loss_is_multiplied_by_a_seed_of_one() -> None:
    text = """graph @step(%z: float32[5,4], %labels: int32[5]) {
  %dz = SparseSoftmaxCrossEntropyWithLogits(%z, %labels) {is_grad = true} : float32[5,4] @b9
  %r = Neg(%dz) @b
  return %r
}"""
    made = narrowed(text, "dz", "r")
    product = node(made, "r").operand(0)
    assert isinstance(product, Node)
    assert product.operand(0).name == "dz"
    assert (product.op.name, product.operand(1).literal) == ("Mul", scalar_tensor(F16, 1.0))
    assert product.primal == node(made, "dz").primal


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [("65504.0", F16, False), ("65600.0", F16, True), ("-1e9", F16, True), ("inf", F16, False), ("1e30", BF16, False)],
)
def test_a_finite_constant_overflows_where_it_would_be_infinite(value: str, dtype: DType, expected: bool) -> None:
    made = graph(f"  %a = Mul(%x, float32[2]<1.0, {value}>)\n  return %a")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert overflows(node(made, "a").operand(1), dtype) is expected
    assert not overflows(node(made, "a").operand(0), dtype)


def test_statistics_stay_float32_beside_half_precision() -> None:
    made = graph(
        "  %n = BatchNorm(%x, %x, %x, %x, %x) : (float32[2], float32[2], float32[2], float32[2], float32[2])\n"
        "  return %x"
    )
    batch_norm = node(made, "n")
    assert narrowable(batch_norm) == [0]
    kept = halved("BatchNorm", batch_norm.type, F16)
    assert isinstance(kept, TupleType)
    assert [is_half(t) for t in kept.elements] == [True, False, False, False, False]
    assert halved("Neg", tensor("int32", 2), F16) == tensor("int32", 2)
    assert halved("Neg", tensor("float32", 2), BF16) == tensor("bfloat16", 2)


HALF = """
state %w: float16[2]<1.5, 2.5> role=weight
state %n: int32[1] role=counter
graph @step(%x: float16[2]) -> (loss) {
  %l = Load(%w, umonad)
  %a = Cast(%l, 43) : float32[2]
  %b = Mul(%x, float16[]<0.5>)
  %t = Greater(%b, %l)
  %c = Cast(%t, 42) : float16[2]
  %i = Cast(%c, 34) : int32[2]
  %d = Mul(%c, %i) : float16[2]
  %e = Cast(%a, 42) : float16[2]
  %p = MakeTuple(%d, %e)
  %s = AddN(%p) : float16[2]
  %r = Add(%s, %b)
  return %r
}"""


def test_the_way_back_widens_values_constants_and_the_types_that_nodes_name() -> None:
    made = program(HALF)
    assert widen(made) == 6  # Load, Mul, Mul, MakeTuple, AddN and Add; casts are none
    text = print_program(made)
    assert "float16" not in text
    (g,) = made.graphs.values()
    verify(g)
    # The casts of floats are gone, those of bools and integers say the new type.
    assert {n.name: n.operand(1).literal for n in g if n.op.name == "Cast"} == {"c": 43, "i": 34}
    variable = made.state["w"]
    assert numbers(variable.type, variable.data).tolist() == [1.5, 2.5]
    assert str(made.state["n"].type) == "int32[1]"
    constant = node(g, "b").operand(1)
    assert isinstance(constant, Constant)
    assert constant.literal == scalar_tensor("float32", 0.5)
    assert widened(tensor("int32", 2)) == tensor("int32", 2)
    assert widen(made) == 0
