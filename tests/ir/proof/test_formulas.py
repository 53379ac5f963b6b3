"""What passes change on purpose, proved against formulas that know no pass; and faults in it, which are not proved."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from boost_compile.ir.analysis.training.stages import Point
from boost_compile.ir.core.attributes import scalar_tensor
from boost_compile.ir.core.graph import Value
from boost_compile.ir.core.types import tensor
from boost_compile.ir.proof.prover import prove
from boost_compile.ir.proof.verdict import OWN, PURPOSE, SAME, STATE, Proof
from boost_compile.ir.rewrite.stages import put
from boost_compile.ir.text import parse_program, print_program
from boost_compile.passes import clip_gradients, gradient_freeze, lower_gradient_centralization

import boost_compile as bc

from .attacks import attacks, load

TESTS = Path(__file__).parents[2]
NORM, EACH, VALUE = (f"clip-gradients{{by={by},limit=0.05}}" for by in ("global-norm", "tensor-norm", "value"))
CENTRAL = "lower-gradient-centralization"
BIAS = "parameter-groups{match=[*.bias],lr_factor=2.0,weight_decay=0.5}"
MATRIX = "parameter-groups{rank=matrix,lr_factor=0.5}"
FREEZE_LAST = "gradient-freeze{train=[*,output.weight]}"
ALL = f"{CENTRAL},{BIAS},{NORM}"
CYCLES = (
    "",
    "gradient-accumulation{steps=3}",
    "gradient-accumulation{steps=2,split=fused},overflow-check,loss-scale",
    "overflow-check{policy=skip-micro},gradient-accumulation{steps=2}",
    "data-parallel,gradient-accumulation{steps=2}",
)


def proof(name: str, pipeline: str) -> Proof:
    original = load(name)
    return proof_of(original, bc.compile(original, pipeline))


def proof_of(original: bc.Program, program: bc.Program) -> Proof:
    return prove(original, program)[0]


def show(found: Proof) -> str:
    return "\n".join(f"{v.what} {v.name}: {v.kind} {v.detail}" for v in found.failures)


@pytest.mark.parametrize("formula", [NORM, EACH, VALUE, CENTRAL, MATRIX, f"{CENTRAL},{MATRIX},{NORM}"])
@pytest.mark.parametrize("cycle", CYCLES)
def test_an_optimizer_of_many_primitives_has_a_gradient_too(formula: str, cycle: str) -> None:
    """Written by hand: no primitive says which of its operands is the gradient."""
    original = load("hand_momentum")
    found = bc.prove(original, bc.compile(original, f"{formula},{cycle}".strip(",")))
    assert found.proved, show(found.proof)
    assert all(s.weights for s in found.proof.stated)


@pytest.mark.parametrize("name", ["mlp", "mlp_adam_decay", "lenet_bn", "residual_half"])
@pytest.mark.parametrize("formula", [NORM, EACH, VALUE, CENTRAL, BIAS, MATRIX, ALL])
def test_a_change_is_proved_against_its_formula(name: str, formula: str) -> None:
    for cycle in CYCLES if name == "mlp" else CYCLES[:2]:
        found = proof(name, f"{formula},{cycle}".strip(","))
        assert found.proved, show(found)
        assert PURPOSE in {v.kind for v in found.verdicts}
        asked = {p.partition("{")[0] for p in formula.split(",") if p.partition("{")[0] in by(found)}
        assert asked == by(found)


def by(found: Proof) -> set[str]:
    return {s.by for s in found.stated}


def test_a_verdict_names_the_passes_that_change_its_state() -> None:
    """Only what a formula is about is changed; what is not keeps its bits."""
    found = proof("mlp", BIAS)
    kinds = {v.name: (v.kind, v.detail) for v in found.verdicts if v.what == STATE}
    assert kinds["hidden.bias"] == kinds["moments.output.bias"] == (PURPOSE, "by parameter-groups")
    assert kinds["hidden.weight"] == kinds["moments.output.weight"] == (SAME, "")
    (stated,) = found.stated
    assert stated.weights == ("hidden.bias", "output.bias")
    assert stated.says == "the decay of the weight w is 0.5 · w, its learning rate is multiplied by 2"


@pytest.mark.parametrize(
    ("pipeline", "name", "options"),
    [
        (NORM, "clip-gradients", {"limit": 0.06}),
        (VALUE, "clip-gradients", {"limit": 0.06}),
        (EACH, "clip-gradients", {"by": "global-norm"}),
        (NORM, "clip-gradients", {"by": "tensor-norm"}),
        (BIAS, "parameter-groups", {"lr_factor": 2.5}),
        (BIAS, "parameter-groups", {"weight_decay": 0.4}),
        (BIAS, "parameter-groups", {"match": ["hidden.bias"]}),
        (MATRIX, "parameter-groups", {"rank": "any"}),
    ],
)
@pytest.mark.parametrize("cycle", CYCLES[:2])
def test_other_options_have_another_formula(pipeline: str, name: str, options: dict[str, object], cycle: str) -> None:
    original = load("mlp")
    program = bc.compile(original, f"{pipeline},{cycle}".strip(","))
    (report,) = (r for r in program.reports if r.name == name)
    assert prove(original, program)[0].proved
    report.options.update(options)
    assert not prove(original, program)[0].proved


def test_other_axes_are_another_formula() -> None:
    original = load("lenet_bn")
    program = bc.compile(original, CENTRAL)
    tagged = next(v for v in program.state.values() if v.info.get("centralize") == [1, 2, 3])
    tagged.info["centralize"] = [2, 3]
    found = prove(original, program)[0]
    assert {v.name for v in found.failures} >= {tagged.name}
    del tagged.info["centralize"]
    assert not prove(original, program)[0].proved


def test_what_the_cell_does_to_a_weight_by_itself_is_no_part_of_its_step(tmp_path: Path) -> None:
    """It bounds the weight behind the update. A scaled step in front of that has no law."""
    path = TESTS / "passes/replace_optimizer_own_writes.ir"
    faster = "parameter-groups{lr_factor=4}"
    original = bc.load(path)
    assert proof_of(original, bc.compile(original, faster)).proved
    momentum = "ApplyMomentum(%w, %m, %learning_rate, %dw, float32[]<0.9>, %u1) : float32[2,2]"
    text = path.read_text(encoding="utf-8")
    assert momentum in text
    by_hand = tmp_path / "by_hand.ir"
    by_hand.write_text(text.replace(momentum, "AssignSub(%w, %dw, %u1)"), encoding="utf-8")
    composed = bc.load(by_hand)
    found = bc.prove(composed, bc.compile(composed, faster))
    assert not found.proved
    assert {v.detail for v in found.proof.failures} == {
        "the cell writes weight 'w' by itself behind its update: law missing for a scaled step"
    }


FOR_GOOD = "freeze{match=hidden.*}"


@pytest.mark.parametrize("cycle", CYCLES)
@pytest.mark.parametrize("more", ["", NORM, FREEZE_LAST])
def test_weights_that_are_frozen_for_good_are_proved(more: str, cycle: str) -> None:
    original = load("mlp")
    found = bc.prove(original, bc.compile(original, ",".join(p for p in (FOR_GOOD, more, cycle) if p)))
    assert found.proved, show(found.proof)
    frozen = {v.name for v in found.proof.verdicts if v.detail.startswith("by freeze")}
    assert frozen == {"hidden.weight", "hidden.bias"}
    (stated,) = (s for s in found.proof.stated if s.by == "freeze")
    assert stated.weights == ("hidden.bias", "hidden.weight")


def test_gradients_that_only_frozen_weights_took_need_no_test() -> None:
    """Also where no primitive of an optimizer says whose they are."""
    original = load("hand_momentum")
    found = bc.prove(original, bc.compile(original, "freeze{match=[*.weight]},overflow-check,loss-scale"))
    assert found.proved, show(found.proof)


@pytest.mark.parametrize("match", [["hidden.weight"], ["output.*"], ["*"], []])
def test_other_weights_were_to_be_frozen(match: list[str]) -> None:
    original = load("mlp")
    program = bc.compile(original, f"{FOR_GOOD},gradient-accumulation{{steps=2}}")
    next(r for r in program.reports if r.name == "freeze").options["match"] = match
    assert not prove(original, program)[0].proved


FREEZE = "gradient-freeze{train=[*,output.*,*.bias],strategy=[0,1,2,1]}"


@pytest.mark.parametrize("cycle", CYCLES[:3])
@pytest.mark.parametrize("freeze", [FREEZE, "gradient-freeze{groups=2}", f"{FREEZE},{NORM}", f"{FREEZE},{BIAS}"])
def test_each_variant_of_a_program_is_proved(freeze: str, cycle: str) -> None:
    found = proof("mlp", f"{freeze},{cycle}".strip(","))
    assert found.proved, show(found)
    frozen = {v.name for v in found.verdicts if v.kind == PURPOSE and "gradient-freeze" in v.detail}
    assert frozen >= {"hidden.weight", "moments.hidden.weight"}
    assert any(
        v.name == "freeze.cycle" and v.detail == "counts windows in windows of variant 1" for v in found.verdicts
    )


@pytest.mark.parametrize(
    "options",
    [
        {"train": ["*", "hidden.*", "*.bias"]},
        {"strategy": [0, 1, 2, 2]},
        {"after": "repeat"},
        {"train": []},
        {"type": 3},
    ],
)
def test_variants_that_were_not_asked_for_are_not_proved(options: dict[str, object]) -> None:
    original = load("mlp")
    program = bc.compile(original, FREEZE)
    next(r for r in program.reports if r.name == "gradient-freeze").options.update(options)
    proved = prove(original, program)[0].proved
    assert proved == (options == {"type": 3})  # a strategy stands above the type


def test_a_frozen_weight_shares_its_gradient_with_one_that_is_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    """The two biases of an LSTM: their one sum goes on as long as one of them is trained."""
    original = load("lstm")
    shared = [n for n in original.state if original.state[n].role == "weight" and "bias_hh" in n]
    pipeline = f"gradient-accumulation{{steps=2}},gradient-freeze{{train=[*,{shared[0]}]}}"
    assert prove(original, bc.compile(original, pipeline))[0].proved
    pipeline = pipeline.replace(shared[0], shared[0].replace("bias_hh", "bias_ih"))
    assert prove(original, bc.compile(original, pipeline))[0].proved
    monkeypatch.setattr(gradient_freeze, "sharing", lambda graphs, frozen: set())
    failed = [prove(original, bc.compile(original, p))[0].proved for p in (pipeline, pipeline.replace("_ih", "_hh"))]
    assert sorted(failed) == [False, True]


def test_a_variant_that_moves_what_it_freezes_is_not_proved() -> None:
    original = load("mlp")
    program = bc.compile(original, "gradient-freeze{train=[*,output.*]},gradient-accumulation{steps=2}")
    program.graphs["apply.1"], _ = program.graphs["apply"].clone("apply.1")
    assert not prove(original, program)[0].proved


@pytest.mark.parametrize("cycle", CYCLES)
def test_a_network_without_some_of_its_norms_is_proved(cycle: str) -> None:
    original = load("residual")
    program = bc.compile(original, f"less-bn,{NORM},{cycle}".strip(","))
    found = bc.prove(original, program)
    assert found.proved, show(found.proof)
    (stated,) = (s for s in found.proof.stated if s.by == "less-bn")
    assert set(stated.weights) == {n for n in original.state if n not in program.state and "moment" not in n} - {
        n for n in original.state if "moving" in n
    }
    loss = next(v for v in found.proof.verdicts if v.name == "loss")
    assert loss.kind == PURPOSE
    assert loss.detail.startswith("by less-bn")


def test_a_norm_that_is_gone_without_a_record_is_not_proved() -> None:
    original = load("residual")
    program = bc.compile(original, "less-bn")
    program.reports = bc.compile(original, NORM).reports
    assert not bc.prove(original, program).proved


def test_a_state_that_is_no_norms_cannot_be_gone() -> None:
    original = load("residual")
    program = bc.compile(original, "less-bn,gradient-accumulation{steps=2}")
    extra = next(n for n, v in original.state.items() if v.role == "weight" and len(v.shape) == 4)
    del program.state[extra]
    assert not bc.prove(original, program).proved


@pytest.mark.parametrize("part", range(2))
def test_no_fault_in_a_network_without_norms_is_proved(part: int) -> None:
    total, kinds, proved = attacks(range(part * 10_000, part * 10_000 + 400), 10, ("residual",), ("less-bn",))
    assert proved == []
    assert total == 10
    assert len(kinds) >= 3


def test_what_is_marked_as_a_gradient_and_is_none_is_not_proved() -> None:
    """A clip that is marked as part of the backward part is none: it is not linear in the derivative of the loss."""
    original = load("clip_global_norm")
    assert proof("clip_global_norm", CYCLES[1]).proved
    for node in original.graphs["step"]:
        if "clip" in node.name:
            node.primal = {"forward_unique_id": "1"}
    failed = prove(original, bc.compile(load("clip_global_norm"), CYCLES[1]))[0].failures
    assert failed
    assert all("is not linear in the derivative of the loss" in v.detail for v in failed)


def test_what_leaves_the_marked_part_too_early_is_no_gradient() -> None:
    """The product that makes the gradient of a weight has lost its mark: what is marked is the derivative before it."""
    original = load("mlp")
    program = bc.compile(load("mlp"), CYCLES[1])
    product = next(n for n in original.graphs["step"] if n.op.name == "MatMul" and n.type == tensor("float32", 16, 8))
    product.primal, product.scope = {}, "Default/optimizer-Momentum"
    failed = prove(original, program)[0].failures
    assert {v.detail for v in failed} == {
        "what the file marks as the gradient of weight 'hidden.weight' has not as many elements as it"
    }


HALF = "mixed-precision{level=O2,loss_scale=false}"


@pytest.mark.parametrize("name", ["mlp", "mlp_adam_decay", "lenet_bn", "lstm"])
@pytest.mark.parametrize("precision", ["mixed-precision{level=O1,loss_scale=false}", HALF, "mixed-precision{level=O3}"])
def test_half_precision_is_the_same_where_nothing_is_rounded(name: str, precision: str) -> None:
    original = load(name)
    found = bc.prove(original, bc.compile(original, f"{precision},gradient-accumulation{{steps=2}}"))
    assert found.proved, show(found.proof)
    assert [s.says for s in found.proof.stated] == [
        "the network computes in float16, its constants rounded; the same where nothing else is rounded"
    ]
    weights = {v.name: v.kind for v in found.proof.verdicts if v.name in original.state and "weight" in v.name}
    assert set(weights.values()) == {PURPOSE}


STACKED = """
state %w: float32[2,4,4] role=weight
state %rate: float32[] role=hyperparameter
graph @step(%x: float32[2,4,4]) -> (loss) {
  %w0 = Load(%w, umonad) : float32[2,4,4] primal {unique_id = "1"}
  %e = Exp(%x) : float32[2,4,4] scope("net/Exp-op0") primal {unique_id = "2"}
  %y = MatMulExt(%e, %w0) : float32[2,4,4] scope("net/MatMulExt-op0") primal {unique_id = "3"}
  %q = Square(%y) : float32[2,4,4] scope("net/Square-op0") primal {unique_id = "4"}
  %loss = ReduceSum(%q, (0, 1, 2), false, false) : float32[] scope("net/ReduceSum-op0") primal {unique_id = "5"}
  %dq = OnesLike(%q) : float32[2,4,4] primal {forward_unique_id = "5"}
  %d = Mul(%dq, %y) : float32[2,4,4] primal {forward_unique_id = "4"}
  %dy = Mul(%d, float32[]<2.0>) : float32[2,4,4] primal {forward_unique_id = "4"}
  %t = Transpose(%e, (0, 2, 1)) : float32[2,4,4] primal {forward_unique_id = "3"}
  %dw = MatMulExt(%t, %dy) : float32[2,4,4] primal {forward_unique_id = "3"}
  %u = UpdateState(umonad, %w0)
  %n = ApplyGradientDescent(%w, %rate, %dw, %u) : float32[2,4,4]
  %u2 = UpdateState(%u, %n)
  %out = Depend(%loss, %u2)
  return %out
}
"""


def test_products_that_read_a_matrix_as_it_lies_are_proved_and_others_are_not() -> None:
    original = parse_program(STACKED)
    program = bc.compile(original, HALF.replace("}", ",saved=half}"))
    assert program.reports[0].statistics["products that read a matrix as it lies"] == 1
    (product,) = (node for node in program.all_nodes() if node.op.name == "BatchMatMul")
    found = bc.prove(original, program)
    assert found.proved, show(found.proof)
    product.set_operand(2, product.home.constant(False))
    assert {v.name for v in proof_of(original, program).failures} == {"w"}


def test_adapters_beside_products_that_transpose_nothing_are_proved() -> None:
    flat = STACKED.replace("[2,4,4]", "[4,4]").replace("(0, 2, 1)", "(1, 0)").replace("(0, 1, 2)", "(0, 1)")
    original = parse_program(flat)
    program = bc.compile(original, "lora{match=w,rank=1}")
    found = bc.prove(original, program)
    assert found.proved, show(found.proof)
    scaled = next(n for n in program.all_nodes() if n.op.name == "Mul" and n.scope == "net/MatMulExt-op0")
    scaled.set_operand(1, scaled.home.constant(scalar_tensor("float32", 3.0)))
    assert proof_of(original, program).failures


ROUNDED = """
state %w: float32[2,4] role=weight
state %b: float32[2] role=weight
state %rate: float32[] role=hyperparameter
graph @step(%x: float32[5,4], %labels: int32[5]) -> (loss) {
  %w0 = Load(%w, umonad) : float32[2,4] primal {unique_id = "1"}
  %b0 = Load(%b, umonad) : float32[2] primal {unique_id = "2"}
  %y = MatMul(%x, %w0, false, true) : float32[5,2] scope("net/Dense/MatMul-op0") primal {unique_id = "3"}
  %s = Mul(%y, float32[]<0.2>) : float32[5,2] scope("net/Mul-op0") primal {unique_id = "4"}
  %z = Add(%s, %b0) : float32[5,2] scope("net/Add-op0") primal {unique_id = "5"}
  %loss = SparseSoftmaxCrossEntropyWithLogits(%z, %labels) {is_grad = false} : float32[] primal {unique_id = "6"}
  %dz = SparseSoftmaxCrossEntropyWithLogits(%z,%labels) {is_grad = true} : float32[5,2] primal {forward_unique_id = "6"}
  %db = SumExt(%dz, (0,), false, 43) : float32[2] primal {forward_unique_id = "5"}
  %ds = Mul(%dz, float32[]<0.2>) : float32[5,2] primal {forward_unique_id = "4"}
  %dw = MatMul(%ds, %x, true, false) : float32[2,4] primal {forward_unique_id = "3"}
  %u = UpdateState(umonad, %w0, %b0)
  %n = ApplyGradientDescent(%w, %rate, %dw, %u) : float32[2,4]
  %u2 = UpdateState(%u, %n)
  %m = ApplyGradientDescent(%b, %rate, %db, %u2) : float32[2]
  %u3 = UpdateState(%u2, %m)
  %out = Depend(%loss, %u3)
  return %out
}
"""
"""float16 cannot hold 0.2; and SumExt is told the number of the type that it returns."""


def rounded_otherwise(program: bc.Program) -> bc.Program:
    """The program with the next smaller number of float16 for 0.2."""
    text = print_program(program)
    assert "float16[]<0.2>" in text
    off = parse_program(text.replace("float16[]<0.2>", "float16[]<0.1998>"))
    off.reports = program.reports
    return off


def test_constants_count_as_rounded_and_not_as_other_numbers() -> None:
    original = parse_program(ROUNDED)
    program = bc.compile(original, HALF)
    (told,) = (node for node in program.all_nodes() if node.op.name == "SumExt")
    assert (str(told.type), told.operand(3).literal) == ("float16[2]", 42)
    found = bc.prove(original, program)
    assert found.proved, show(found.proof)
    assert {v.name for v in proof_of(original, rounded_otherwise(program)).failures} == {"w", "b", "loss"}


def test_a_gradient_that_is_computed_otherwise_is_not_called_untested() -> None:
    original = parse_program(ROUNDED)
    off = rounded_otherwise(bc.compile(original, "mixed-precision{level=O2}"))
    said = {v.detail for v in proof_of(original, off).failures}
    assert "none of the values that are tested is proved to hold this gradient, which may overflow" in said


def test_another_precision_without_a_record_is_not_proved() -> None:
    original = load("mlp")
    program = bc.compile(original, HALF)
    program.reports = bc.compile(original, NORM).reports
    assert not prove(original, program)[0].proved


@pytest.mark.parametrize("part", range(2))
def test_no_fault_in_half_precision_is_proved(part: int) -> None:
    total, kinds, through = attacks(range(part * 10_000, part * 10_000 + 400), 10, ("mlp", "mlp_adam_decay"), (HALF,))
    assert through == []
    assert total == 10
    assert len(kinds) >= 3


EMA = "weight-average{warmup=10}"
AHEAD = "weight-average{kind=lookahead,every=3}"


@pytest.mark.parametrize("cycle", CYCLES)
@pytest.mark.parametrize("average", [EMA, "weight-average{kind=swa,every=2,warmup=3}", AHEAD, f"{AHEAD},{NORM}"])
def test_averages_follow_their_rule(average: str, cycle: str) -> None:
    original = load("mlp")
    found = bc.prove(original, bc.compile(original, f"{average},{cycle}".strip(",")))
    assert found.proved, show(found.proof)
    own = {v.name: v.kind for v in found.proof.verdicts if v.name.startswith("average")}
    assert set(own.values()) == {OWN}
    assert len(own) == 5  # four weights, and the count of updates
    moved = {v.name for v in found.proof.verdicts if "weight-average" in v.detail}
    weights = {n for n, v in original.state.items() if v.role == "weight"}
    assert moved == (weights if AHEAD in average else set())


@pytest.mark.parametrize(
    ("average", "options"),
    [
        (EMA, {"decay": 0.99}), (EMA, {"warmup": 9}), (EMA, {"kind": "swa"}), (AHEAD, {"every": 5}),
        (AHEAD, {"decay": 0.25}), (AHEAD, {"kind": "ema"}),
    ],
)  # fmt: skip
def test_other_averages_have_another_rule(average: str, options: dict[str, object]) -> None:
    original = load("mlp")
    program = bc.compile(original, f"{average},gradient-accumulation{{steps=2}}")
    (report,) = (r for r in program.reports if r.name == "weight-average")
    assert prove(original, program)[0].proved
    report.options.update(options)
    assert not prove(original, program)[0].proved


@pytest.mark.parametrize("name", ["average.hidden.bias", "average_updates.count"])
def test_an_average_begins_as_its_weight(name: str) -> None:
    original = load("mlp")
    program = bc.compile(original, EMA)
    changed = program.with_values({name: program.state[name].initial + program.state[name].initial.dtype.type(1)})
    assert {v.name for v in prove(original, changed)[0].failures} == {name}


@pytest.mark.parametrize("part", range(2))
def test_no_fault_in_an_average_is_proved(part: int) -> None:
    total, kinds, through = attacks(range(part * 10_000, part * 10_000 + 400), 10, ("mlp",), (EMA, AHEAD))
    assert through == []
    assert total == 10
    assert len(kinds) >= 3


def _norm_of_fewer(points: Sequence[Point]) -> list[Value]:
    squares = _squares(points)
    return [*squares[:-1], squares[0]]


_squares = clip_gradients._squares
FAULTS: dict[str, tuple[object, str, Callable[..., object], str]] = {
    "the norm is taken over the wrong set": (clip_gradients, "_squares", _norm_of_fewer, NORM),
    "clipped behind the decay": (
        clip_gradients, "put", lambda path, _, make: put(path, "weight-decay", make), NORM),
    "centralized in front of the decay": (
        lower_gradient_centralization, "put", lambda path, _, make: put(path, "clip", make), CENTRAL),
    "the norm is not a root": (
        clip_gradients, "norm", lambda graph, squares: graph.create("Square", [squares[0]]), NORM),
    "longer instead of shorter": (
        clip_gradients, "factor", lambda graph, length, limit: graph.create("RealDiv", [length, length]), EACH),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_a_pass_is_not_proved(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, name, wrong, pipeline = FAULTS[fault]
    original = load("mlp_adam_decay")
    decay = "parameter-groups{weight_decay=0.1}"
    pipeline = f"{decay},gradient-accumulation{{steps=2}},{pipeline}"
    assert prove(original, bc.compile(original, pipeline))[0].proved
    monkeypatch.setattr(module, name, wrong)
    assert not prove(original, bc.compile(original, pipeline))[0].proved


def test_a_mean_of_clipped_gradients_is_not_a_clipped_mean() -> None:
    original = load("mlp")
    right = bc.compile(original, f"gradient-accumulation{{steps=2}},{VALUE}")
    program = bc.compile(original, "gradient-accumulation{steps=2}")
    program.reports = right.reports
    graph = program.graphs["accumulate"]
    for node in list(graph):
        if node.op.name == "AssignAdd" and node.operand(0).name.startswith("accum."):
            high, low = (graph.constant(scalar_tensor("float32", x)) for x in (0.05, -0.05))
            with graph.inserting_before(node):
                shorter = graph.create("Minimum", [node.operand(1), high])
                node.set_operand(1, graph.create("Maximum", [shorter, low]))
    assert prove(original, right)[0].proved
    assert not prove(original, program)[0].proved


CHANGING = (
    NORM, EACH, VALUE, ALL, f"{VALUE},gradient-accumulation{{steps=2}}", f"{ALL},gradient-accumulation{{steps=2}}",
)  # fmt: skip
NETWORKS = ("mlp", "mlp_adam_decay", "clip_global_norm", "hand_momentum")


@pytest.mark.parametrize("part", range(2))
def test_no_fault_that_shows_is_proved(part: int) -> None:
    total, kinds, proved = attacks(range(part * 10_000, part * 10_000 + 400), 25, NETWORKS, CHANGING)
    assert proved == []
    assert total == 25
    assert len(kinds) >= 4


@pytest.mark.slow
def test_a_thousand_faults() -> None:
    total, kinds, proved = attacks(range(200_000, 215_000), 1000, NETWORKS, CHANGING)
    assert proved == []
    assert total == 1000, kinds


@pytest.mark.parametrize(
    ("pipeline", "option", "value"),
    [
        ("schedule{total=9}", "warmup", "three"),
        ("schedule{total=9}", "total", 0),
        ("lora{match=[*.weight],rank=2}", "rank", 0),
        ("lora{match=[*.weight],rank=2}", "train", None),
        ("replace-optimizer{to=lion}", "to", "lion{"),
        ("replace-optimizer{to=lion}", "to", "lion{beta1=high}"),
        ("replace-optimizer{to=lion}", "match", ()),
        ("normalised-head", "bias", None),
    ],
)
@pytest.mark.parametrize("gone", [False, True])
def test_a_record_that_says_nothing_is_no_proof(pipeline: str, option: str, value: object, gone: bool) -> None:
    """A damaged file: an option that is none, or is not there."""
    original = load("mlp")
    program = bc.compile(original, pipeline)
    options = program.reports[-1].options
    if gone:
        del options[option]
    else:
        options[option] = value
    assert not bc.prove(original, program).proved


RESTATED = (
    "schedule{total=3,warmup=1},gradient-accumulation{steps=2}",
    "lora{match=[hidden.weight],rank=2,train=[*.bias]}",
    "lora{match=[*.weight],rank=2},gradient-accumulation{steps=2,split=fused},overflow-check,loss-scale",
    "normalised-head,gradient-accumulation{steps=2}",
    *(f"replace-optimizer{{to={to}}}" for to in ("lion", "muon", "lamb", "schedule-free-adamw")),
    "replace-optimizer{to=muon,match=[hidden.*]},schedule{kind=linear,total=3},gradient-accumulation{steps=2}",
    "gradient-accumulation{steps=2,reduction=weighted,weight=inputs0}",
)


@pytest.mark.slow
def test_a_thousand_faults_in_what_states_the_original_anew() -> None:
    total, kinds, proved = attacks(range(300_000, 330_000), 1000, ("mlp", "mlp_adam_decay"), RESTATED)
    assert proved == []
    assert total == 1000, kinds
