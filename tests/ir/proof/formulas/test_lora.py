"""Adapters are proved against their formula: y + (alpha / rank) · (x · Aᵀ) · Bᵀ, the product rule, the update of the
weight; faults in them are not proved."""

from __future__ import annotations

from pathlib import Path

import pytest
from boost_compile.ir.core.graph import Value
from boost_compile.ir.core.names import lora_a_of, lora_b_of
from boost_compile.ir.proof.verdict import PURPOSE, STATE
from boost_compile.passes.lora import adapters

import boost_compile as bc
from tests.ir.proof.attacks import attacks, load

LORA = "lora{match=[*.weight],rank=2,train=[output.bias]}"
CYCLES = (
    "",
    "gradient-accumulation{steps=2,split=fused},overflow-check,loss-scale",
    "overflow-check{policy=skip-micro},gradient-accumulation{steps=2}",
    "data-parallel,clip-gradients{limit=0.05},parameter-groups{match=[*lora_A*],lr_factor=2.0},schedule{total=9}",
)


@pytest.mark.parametrize("cycle", CYCLES)
@pytest.mark.parametrize("name", ["mlp", "mlp_adam_decay"])
def test_adapters_are_proved(name: str, cycle: str) -> None:
    original = load(name)
    program = bc.compile(original, f"{LORA},{cycle}".strip(","))
    found = bc.prove(original, program)
    assert found.proved, found
    trained, held = (s for s in found.proof.stated if s.by == "lora")
    layers = ("hidden.weight", "output.weight")
    assert set(trained.weights) == {f(w) for f in (lora_a_of, lora_b_of) for w in layers}
    assert held.weights == ("hidden.bias", "hidden.weight", "output.weight")
    kinds = {v.name: (v.kind, v.detail) for v in found.proof.verdicts if v.what == STATE}
    assert {kinds[n][0] for n in trained.weights} == {PURPOSE}
    assert kinds["hidden.weight"][1].startswith("by lora")


@pytest.mark.parametrize(
    "options", [{"alpha": 4.0}, {"rank": 4}, {"match": ["hidden.*"]}, {"train": []}, {"train": ["*.bias"]}]
)
def test_other_options_are_other_adapters(options: dict[str, object]) -> None:
    original = load("mlp")
    program = bc.compile(original, f"{LORA},gradient-accumulation{{steps=2}}")
    next(r for r in program.reports if r.name == "lora").options.update(options)
    assert not bc.prove(original, program).proved


@pytest.mark.parametrize("name", ["hidden.lora_B.weight", "moments.hidden.lora_A.weight"])
def test_adapters_begin_without_a_share_of_the_result(name: str) -> None:
    original = load("mlp")
    program = bc.compile(original, LORA)
    found = bc.prove(original, program.with_values({name: program.state[name].initial + 1}))
    assert [v.name for v in found.proof.failures] == [name]


ONE_INPUT = """
state %q: float32[4,3] role=weight
state %k: float32[5,3] role=weight
state %rate: float32[]<0.1> role=hyperparameter

graph @step(%x: float32[2,3,3]) -> (loss) {
  %wq = Load(%q, umonad) primal {unique_id = "1"}
  %wk = Load(%k, umonad) primal {unique_id = "2"}
  %rows = Reshape(%x, (6, 3)) : float32[6,3] primal {unique_id = "3"}
  %a = MatMul(%rows, %wq, false, true) : float32[6,4] primal {unique_id = "4"}
  %b = MatMul(%rows, %wk, false, true) : float32[6,5] primal {unique_id = "5"}
  %one = ReduceSum(%a, (), false, false) : float32[] primal {unique_id = "6"}
  %other = ReduceSum(%b, (), false, false) : float32[] primal {unique_id = "7"}
  %loss = Mul(%one, %other) : float32[] primal {unique_id = "8"}
  %ea = OnesLike(%a) primal {forward_unique_id = "6"}
  %eb = OnesLike(%b) primal {forward_unique_id = "7"}
  %da = Mul(%ea, %other) primal {forward_unique_id = "8"}
  %db = Mul(%eb, %one) primal {forward_unique_id = "8"}
  %dq = MatMul(%da, %rows, true, false) : float32[4,3] primal {forward_unique_id = "4"}
  %dk = MatMul(%db, %rows, true, false) : float32[5,3] primal {forward_unique_id = "5"}
  %u = UpdateState(umonad, %wq, %wk)
  %nq = ApplyGradientDescent(%q, %rate, %dq, %u) : float32[4,3]@q
  %nk = ApplyGradientDescent(%k, %rate, %dk, %u) : float32[5,3]@k
  %v = UpdateState(%u, %nq, %nk)
  %r = Depend(%loss, %v) : float32[]
  return %r
}
"""


def test_layers_with_one_input_have_adapters_of_their_own(tmp_path: Path) -> None:
    """As the projections of an attention: which gradient is whose is not told by the input."""
    (tmp_path / "one.ir").write_text(ONE_INPUT)
    original = bc.load(tmp_path / "one.ir")
    program = bc.compile(original, "lora{match=[*],rank=1}")
    assert bc.prove(original, program).proved
    products = [n for n in program.graphs["step"] if n.op.name == "MatMul" and n.operand(1).name == "rows"]
    one, other = (n for n in products if n.type.shape == (1, 6))  # type: ignore[attr-defined]
    first, second = one.operand(0), other.operand(0)
    one.set_operand(0, second)
    other.set_operand(0, first)  # each takes the other's A
    assert not bc.prove(original, program).proved


def test_adapters_that_are_not_scaled_are_not_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    class Unscaled(adapters.Nodes):  # type: ignore[name-defined, misc]
        def scaled(self, value: Value, factor: float) -> Value:
            return super().scaled(value, 1.0)  # type: ignore[no-any-return]

    original = load("mlp")
    monkeypatch.setattr(adapters, "Nodes", Unscaled)
    assert not bc.prove(original, bc.compile(original, "lora{match=[hidden.weight],rank=2}")).proved


def test_no_fault_in_adapters_is_proved() -> None:
    pipelines = ("lora{match=[hidden.weight],rank=2}", f"{LORA},gradient-accumulation{{steps=2}}")
    total, kinds, through = attacks(range(400), 15, ("mlp", "mlp_adam_decay"), pipelines)
    assert through == []
    assert total == 15
    assert len(kinds) >= 4
