"""Roles and names are given once, where a training graph tells them."""

from __future__ import annotations

from boost_compile.ir.rewrite.roles import assign_roles
from boost_compile.ir.text import parse_program

from tests.graphs import program
from tests.material import HERE


def test_a_file_gets_its_roles() -> None:
    raw = parse_program((HERE / "mlp_loss_scale_dynamic.ir").read_text())
    assert {v.role for v in raw.state.values()} == {"unknown"}
    assert assign_roles(raw) is raw
    weight = raw.state["hidden.weight"]
    assert (weight.role, weight.trainable, weight.weight) == ("weight", True, "")
    slot = raw.state["moments.hidden.weight"]
    assert (slot.role, slot.trainable, slot.weight) == ("slot", None, "hidden.weight")
    assert raw.graphs["step"].outputs == ("loss", "overflow", "loss_scale")


def test_roles_and_names_that_are_known_stay() -> None:
    known = parse_program((HERE / "mlp.ir").read_text())
    known.state["hidden.weight"].role = "statistic"
    known.graphs["step"].outputs = ("error",)
    assign_roles(known)
    assert known.state["hidden.weight"].role == "statistic"
    assert known.state["hidden.bias"].role == "unknown"
    named = parse_program((HERE / "mlp.ir").read_text())
    named.graphs["step"].outputs = ("error",)
    assert assign_roles(named).graphs["step"].outputs == ("error",)
    assert named.state["hidden.bias"].role == "weight"


def test_a_forward_graph_stays_as_it_is() -> None:
    forward = program(
        "state %w: float32[2]\ngraph @step(%x: float32[2]) {\n%l = Load(%w, umonad)\n%y = Mul(%l, %x)\nreturn %y\n}"
    )
    assert assign_roles(forward).state["w"].role == "unknown"
