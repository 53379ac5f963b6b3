"""boost-verify on adapters: it sees what is wrong about them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from boost_compile.ir.core.attributes import scalar_tensor
from boost_compile.ir.core.graph import Constant
from boost_compile.passes.lora import lora
from boost_compile.tools.verification.report import NOT_APPLICABLE, Verification
from mindspore import nn

import boost_compile as bc
from tests.networks import CASES
from tests.networks.mlp import cross_entropy, momentum

RIGHT = lora.put_adapter


def unscaled(fx: Any, adapted: Any, states: Any, alpha: float) -> Any:
    """Backward knows of another alpha than forward."""
    gradients = RIGHT(fx, adapted, states, alpha)
    for node in fx.graph:
        scaled = node.op.name == "Mul" and isinstance(node.operand(1), Constant)
        if scaled and node.scope.startswith("Gradients/") and node.primal:
            node.set_operand(1, fx.graph.constant(scalar_tensor("float32", 2.0)))
    return gradients


def doing(fx: Any, adapted: Any, states: Any, alpha: float) -> Any:
    """The layer's result is added twice."""
    gradients = RIGHT(fx, adapted, states, alpha)
    total = next(node for node in fx.graph if "adapter" in node.marks)
    with fx.graph.inserting_before(total):
        total.set_operand(1, fx.graph.create("Add", list(total.operands)))
    return gradients


def judged(source: bc.Program, behind: str = "") -> Verification:
    program = bc.compile(source, f"lora{{match=[*],rank=2}}{behind}")
    return bc.verify(source, program, data=CASES["mlp"].batches(2), bisect=False)


def test_wrong_adapters_are_seen(exported: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    source = bc.load(exported("mlp"))
    assert judged(source).verified
    monkeypatch.setattr(lora, "put_adapter", unscaled)
    assert "different micro-batches" in [r.name for r in judged(source).failures]
    monkeypatch.setattr(lora, "put_adapter", doing)
    assert "losses" in [r.name for r in judged(source).failures]
    monkeypatch.setattr(lora, "put_adapter", RIGHT)
    monkeypatch.setattr(lora, "freeze_weights", lambda program, frozen: 0)
    assert "different micro-batches" in [r.name for r in judged(source).failures]


def test_an_addition_that_rounds_to_half_precision_is_not_the_adapters_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the adapter, MindSpore's kernels pass the layer's result to tanh in float32."""
    network = nn.SequentialCell(nn.Dense(8, 16), nn.Tanh(), nn.Dense(16, 4))
    inputs = CASES["mlp"].batches(1)[0]
    captured = bc.capture(network, cross_entropy(), momentum(list(network.trainable_params())), *inputs)
    captured.save(str(tmp_path / "tanh.mindir"))
    source = bc.load(tmp_path / "tanh.mindir")
    half = ",mixed-precision{level=O2}"
    losses = [
        bc.Session(bc.compile(source, passes)).step(*inputs).loss
        for passes in (half[1:], f"lora{{match=[0.weight],rank=2}}{half}")
    ]
    assert float(losses[0]) != float(losses[1]), "the test must see it"
    assert judged(source, half).verified
    monkeypatch.setattr(lora, "put_adapter", doing)
    assert judged(source, half).failures


def test_a_backward_part_that_is_no_derivative_is_not_the_adapters_fault(exported: Callable[[str], Path]) -> None:
    """One layer has a ``bprop`` of its own that halves the gradient."""
    source = bc.load(exported("own_backward"))
    found = bc.verify(source, bc.compile(source, "lora{match=[*],rank=2}"))
    assert found.result("derivative").status == NOT_APPLICABLE
    assert found.verified
