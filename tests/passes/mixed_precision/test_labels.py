"""What each node computes in, and why it stays in float32 where the level would take it: on small graphs, by name."""

from __future__ import annotations

from typing import Any

import pytest
from boost_compile.ir.core.types import DType
from boost_compile.passes import compile_program
from boost_compile.passes.mixed_precision.labels import FULL, HALF, OUTSIDE, Rule, label

from tests.graphs import program

HEAD = """
state %v: float32[4,3] role=weight
state %mean: float32[4] role=statistic
state %rate: float32[] role=hyperparameter
graph @step(%x: float32[5,3], %labels: int32[5]) -> (loss) {
  %v0 = Load(%v, umonad) @f8
  %y = MatMul(%x, %v0, false, true) : float32[5,4] scope("net/first-Dense/MatMul-op0") @f1
"""
LOSS = """
  %loss = SparseSoftmaxCrossEntropyWithLogits(%z, %labels) {is_grad = false} : float32[] @f9
  %dz = SparseSoftmaxCrossEntropyWithLogits(%z, %labels) {is_grad = true} : float32[5,4] @b9
"""
BACKWARD = "  %dy = Neg(%dz) @b2"
TAIL = """
  %dv = MatMul(%dy, %x, true, false) : float32[4,3] @b1
  %t = UpdateState(umonad, %y, %dy)
  %up = ApplyGradientDescent(%v, %rate, %dv, %t) : float32[4,3]
  %end = UpdateState(%t, %up)
  %r = Depend(%loss, %end)
  return %r
}"""
NORM = "{begin_norm_axis=1, begin_params_axis=1, epsilon=1e-5} : (float32[5,4], float32[5,1], float32[5,1])"


def labels_of(
    forward: str, level: str = "O2", backward: str = BACKWARD, **rule: Any
) -> tuple[dict[str, str], dict[str, str]]:
    """The label of each node by name, and the reasons. %y is a product, `forward` makes %z of it, `backward` %dy."""
    made = program(HEAD + forward + LOSS + backward + TAIL)
    given = {"dtype": DType.FLOAT16, "target": "cpu", **rule}
    found = label(made, made.graphs["step"], Rule(level, **given))
    assert found.told
    assert found.half() == {n for n, what in found.of.items() if what == HALF}
    return {n.name: what for n, what in found.of.items()}, {n.name: reason for n, reason in found.reasons.items()}


def in_half(*given: Any, **rule: Any) -> set[str]:
    return {name for name, what in labels_of(*given, **rule)[0].items() if what == HALF}


def test_the_backward_part_follows_and_the_loss_stays_outside() -> None:
    plain = "  %z = Neg(%y) @f2"
    found, reasons = labels_of(plain)
    assert found == {
        "v0": FULL, "y": HALF, "z": HALF, "loss": OUTSIDE, "dz": OUTSIDE, "dy": HALF, "dv": HALF,
    }  # fmt: skip
    assert not reasons
    assert in_half(plain, "O1") == {"y", "dv"}
    assert in_half(plain, "O3") == {"y", "z", "dy", "dv"}
    assert in_half(plain, loss=True) == {"y", "z", "loss", "dz", "dy", "dv"}
    found, reasons = labels_of(plain, keep=("net/first-Dense",))
    assert (found["y"], found["dv"], found["z"]) == (FULL, FULL, HALF)
    assert reasons == {"y": "keep names its scope"}


@pytest.mark.parametrize(
    ("forward", "name", "reason"),
    [
        ("%z = Mul(%y, float32[]<1e6>) @f2", "z", "a constant that it takes overflows in float16"),
        ("%z = Muls(%y, 1e9) : float32[5,4] @f2", "z", "a constant that it takes overflows in float16"),
        ("%z = AssignAdd(%mean, %y, umonad) : float32[5,4] @f2", "z", "it changes state"),
        ("%d = Depend(%mean, %y)\n  %z = AssignAdd(%d, %y, umonad) : float32[5,4] @f2", "z", "it changes state"),
        ("%z = Mul(%y, %mean) : float32[5,4] @f2", "z", "it takes a state itself"),
        (f"%n = LayerNorm(%y, float32[4]<zeros>, float32[4]<zeros>) {NORM} @f2\n  %z = TupleGetItem(%n, 0) @f3", "n",
         "O2 keeps it in float32"),
        ("%n = Split(%y, 1, 2) : (float32[5,2], float32[5,2]) @f2\n  %z = Concat(%n, 1) : float32[5,4] @f3", "n",
         "what it returns is passed on as a tuple"),
    ],
)  # fmt: skip
def test_what_stays_in_float32_has_its_reason(forward: str, name: str, reason: str) -> None:
    found, reasons = labels_of("  " + forward)
    assert (found[name], reasons) == (FULL, {name: reason})


def test_what_a_large_constant_flows_into_stays_in_float32() -> None:
    """A mask of -1e9 would be -inf in float16, and NaN where it meets a zero. The next product ends that."""
    mask = (
        "  %m = Muls(%y, -1e9) : float32[5,4] @f2\n  %s = Add(%y, %m) @f3\n  %n = Neg(%s) @f4\n"
        "  %z = MatMul(%n, float32[4,4]<zeros>, false, false) : float32[5,4] @f5"
    )
    found, reasons = labels_of(mask)
    assert [found[n] for n in "msnz"] == [FULL, FULL, FULL, HALF]
    assert reasons["s"] == "a value that it takes comes of a constant that overflows in float16"
    assert in_half(mask, dtype=DType.BFLOAT16, target="ascend") >= set("msnz")


def test_what_every_target_runs_in_float32_alone_stays_in_float32() -> None:
    """The CPU would cast to float32 and back; of a primitive that no list of kernels names nothing is known."""
    found, reasons = labels_of("  %z = NuclearNorm(%y) : float32[5,4] @f2")
    assert (found["z"], reasons) == (FULL, {"z": "MindSpore has no float16 kernel for NuclearNorm on any target"})
    found, reasons = labels_of("  %z = Hypot(%y, %y) : float32[5,4] @f2", dtype=DType.FLOAT16, target="ascend")
    assert (found["z"], reasons) == (FULL, {"z": "MindSpore takes no float16 for Hypot"})
    found, reasons = labels_of("  %z = OfNoList(%y) : float32[5,4] @f2")
    assert (found["z"], reasons) == (HALF, {})


@pytest.mark.parametrize(
    "forward",
    [
        "%z = Mul(%y, float32[]<6e4>) @f2",
        "%z = Mul(%y, float32[4]<inf, 1.0, -inf, nan>) : float32[5,4] @f2",
        "%s = Square(%y) @f3\n  %z = AssignAdd(%s, %y, umonad) : float32[5,4] @f2",
        "%b = Greater(%y, float32[]<0.0>) @f3\n  %z = Cast(%b, 43) : float32[5,4] @f2",
        "%n = Split(%y, 1, 2) : (float32[5,2], float32[5,2]) @f3\n  %a = TupleGetItem(%n, 0) @f4\n"
        "  %b = TupleGetItem(%n, 1) @f5\n  %p = MakeTuple(%a, %b) @f6\n  %z = Concat(%p, 1) : float32[5,4] @f2",
    ],
)
def test_nothing_hinders_these(forward: str) -> None:
    found, reasons = labels_of("  " + forward)
    assert found["z"] == HALF
    assert not reasons


def test_integers_and_bools_are_no_question() -> None:
    found, reasons = labels_of(
        "  %b = Greater(%y, float32[]<0.0>) @f3\n  %i = Cast(%b, 34) : int32[5,4] @f4\n  %j = Add(%i, %i) @f5\n"
        "  %z = Mul(%y, %j) : float32[5,4] @f2"
    )
    assert [found[n] for n in "bijz"] == [HALF, FULL, FULL, HALF]
    assert not reasons


def test_o1_takes_what_is_added_and_what_is_a_view_or_copy_of_a_product() -> None:
    """Of anything else they stay in float32, as does all that no list names."""
    forward = """
  %b = BiasAdd(%y, float32[4]<zeros>, 1) : float32[5,4] @f3
  %w = Reshape(%b, (4,5)) : float32[4,5] @f4
  %c = TensorMove(%w) : float32[4,5] @f5
  %s = Square(%x) @f6
  %sw = Reshape(%s, (3,5)) : float32[3,5] @f7
  %sc = TensorMove(%sw) : float32[3,5] @f10
  %sb = BiasAdd(%sc, float32[5]<zeros>, 1) : float32[3,5] @f11
  %m = ReduceSum(%sb, (), false, false) : float32[] @f12
  %k = Reshape(%c, (5,4)) : float32[5,4] @f13
  %z = Mul(%k, %m) @f2"""
    assert in_half(forward, "O1") == {"y", "b", "w", "c", "k", "dv"}
    assert in_half(forward, "O2") == {"y", "b", "w", "c", "s", "sw", "sc", "sb", "m", "k", "z", "dy", "dv"}


SUM = """
  %d1 = Neg(%dz) @b2
  %d2 = Square(%dz) @b3
  %p = MakeTuple(%d1, %d2)
  %dy = AddN(%p) : float32[5,4] @b99"""


def test_a_sum_of_gradients_meets_in_float32_where_o1_has_one_in_float32() -> None:
    """%dy belongs to no node, and one of its summands is the gradient of a node that only O2 takes."""
    forward = "  %a = ReLU(%y) : float32[5,4] @f2\n  %q = Square(%y) @f3\n  %z = Add(%a, %q) @f4"
    assert in_half(forward, "O2", SUM) == {"y", "a", "q", "z", "d1", "d2", "dy", "dv"}
    assert in_half(forward, "O1", SUM) == {"y", "a", "d1", "dv"}
    both = "  %a = ReLU(%y) : float32[5,4] @f2\n  %q = ReLU(%y) : float32[5,4] @f3\n  %z = Add(%a, %q) @f4"
    assert in_half(both, "O1", SUM) == {"y", "a", "q", "d1", "d2", "dy", "dv"}


def test_beyond_o1_a_sum_of_gradients_meets_in_half_precision_where_one_of_them_is() -> None:
    forward = """
  %a = ReLU(%y) : float32[5,4] scope("net/kept-Cell/ReLU-op0") @f2
  %q = Square(%y) @f3
  %z = Add(%a, %q) @f4"""
    assert in_half(forward, "O2", SUM, keep=("net/kept-Cell",)) == {"y", "q", "z", "d2", "dy", "dv"}


def test_what_leaves_the_backward_part_leaves_in_float32() -> None:
    """The sum of two gradients of a weight goes to the optimizer; that of the loss's own gradient stays outside."""
    backward = """
  %dy = Neg(%dz) @b2
  %e = Mul(%dz, %dz) @b98
  %more = MatMul(%e, %x, true, false) : float32[4,3] @b1
  %one = MatMul(%dy, %x, true, false) : float32[4,3] @b1
  %pair = MakeTuple(%one, %more)
  %sum = AddN(%pair) : float32[4,3] @b97"""
    text = HEAD + "  %z = Neg(%y) @f2" + LOSS + backward + TAIL.split("@b1", 1)[1].replace("%dv", "%sum")
    made = program(text)
    found = label(made, made.graphs["step"], Rule("O2", DType.FLOAT16, "cpu"))
    of = {n.name: what for n, what in found.of.items()}
    assert (of["one"], of["more"], of["sum"]) == (HALF, HALF, FULL)


def test_of_a_cell_that_is_called_twice_a_gradient_follows_the_call_whose_values_it_takes() -> None:
    """Both calls have one number; the second has a constant that overflows."""
    forward = """
  %a = Mul(%y, float32[]<2.0>) @f2
  %z = Mul(%a, float32[]<1e6>) @f2"""
    backward = """
  %da = Mul(%dz, float32[]<1e6>) @b2
  %dy = Mul(%da, %y) @b2"""
    found, _ = labels_of(forward, backward=backward)
    assert (found["a"], found["z"]) == (HALF, FULL)
    assert found["dy"] == HALF


@pytest.mark.parametrize("name", ["ReLU6", "MaxPool"])
def test_bfloat16_has_the_range_of_float32_and_lacks_kernels(name: str) -> None:
    forward = f"  %a = Mul(%y, float32[]<1e6>) @f2\n  %z = {name}(%a) : float32[5,4] @f3"
    found, reasons = labels_of(forward, dtype=DType.BFLOAT16, target="ascend")
    assert (found["y"], found["a"], found["z"]) == (HALF, HALF, FULL)
    assert reasons == {"z": f"MindSpore takes no bfloat16 for {name}"}
    _, reasons = labels_of("  %z = Neg(%y) @f2", dtype=DType.BFLOAT16)
    assert "cpu has no bfloat16 kernel" in reasons["y"]


def test_where_the_network_ends_is_not_told_by_a_step_that_returns_it() -> None:
    """All of the forward part counts then, the loss too."""
    text = HEAD + "  %z = Neg(%y) @f2" + LOSS + BACKWARD + TAIL.replace("Depend(%loss, %end)", "Depend(%z, %end)")
    made = program(text)
    found = label(made, made.graphs["step"], Rule("O2", DType.FLOAT16, "cpu"))
    assert not found.told
    assert {n.name for n in found.half()} == {"y", "z", "loss", "dz", "dy", "dv"}
    untold = "where the network ends and the loss begins cannot be told: the loss is cast too"
    for loss, misses in (("float32", [("step", untold)]), ("same", [])):
        asked = f"mixed-precision{{level=O2,loss_scale=false,loss={loss}}}"
        (report,) = compile_program(made, asked, reproducer_directory=None).reports
        assert [(m.site, m.reason) for m in report.misses] == misses


def test_passes_that_look_for_a_network_find_it_in_float32() -> None:
    """In whatever order they are written."""
    made = program(HEAD + "  %z = Neg(%y) @f2" + LOSS + BACKWARD + TAIL)
    mixed = "mixed-precision{level=O2,loss_scale=false}"
    found = compile_program(made, f"{mixed},batch-size{{size=7}}", reproducer_directory=None)
    assert [report.name for report in found.reports] == ["batch-size", "mixed-precision"]
