"""What is proved, and what is not: on the material networks and on small graphs. Without MindSpore."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from boost_compile.ir.core.attributes import scalar_tensor
from boost_compile.ir.core.graph import Node
from boost_compile.ir.core.types import TensorType
from boost_compile.ir.proof.prover import prove
from boost_compile.ir.proof.verdict import OWN, REALS, SAME, STATE, UNPROVED, Proof
from boost_compile.passes.gradient_accumulation import graphs as accumulation

import boost_compile as bc
from tests.synthetic import layers

MATERIAL = Path(__file__).parents[2] / "material"
CLEAN = "common-subexpression-elimination,effect-chain-minimization,dead-code-elimination"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def load(name: str) -> bc.Program:
    return bc.load(MATERIAL / f"{name}.ir")


def proof(original: bc.Program, program: bc.Program) -> Proof:
    return prove(original, program)[0]


def kinds(found: Proof, what: str = STATE) -> dict[str, str]:
    return {v.name: v.kind for v in found.verdicts if v.what == what}


def show(found: Proof) -> str:
    return "\n".join(f"{v.what} {v.name}: {v.kind} {v.detail}" for v in found.failures)


@pytest.mark.parametrize("name", sorted(p.stem for p in MATERIAL.glob("*.ir")))
def test_clean_ups_keep_every_bit(name: str) -> None:
    original = load(name)
    found = proof(original, bc.compile(original, CLEAN))
    if "legalize" in [r.name for r in bc.compile(original, CLEAN).reports]:
        pytest.skip("its primitives were replaced for the target")
    assert found.proved, show(found)
    assert set(kinds(found).values()) == {SAME}


@pytest.mark.parametrize("name", ["mlp", "mlp_adam_decay", "lenet_bn", "lstm", "loop", "branch", "meters"])
@pytest.mark.parametrize("split", ["apply", "fused"])
def test_accumulation_is_proved_for_any_number_of_micro_batches(name: str, split: str) -> None:
    original = load(name)
    found = proof(original, bc.compile(original, f"gradient-accumulation{{steps=3,split={split}}}"))
    assert found.proved, show(found)
    assert REALS in kinds(found).values()


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_the_reduction_is_the_one_that_was_asked_for(reduction: str) -> None:
    original = load("mlp")
    program = bc.compile(original, f"gradient-accumulation{{steps=3,reduction={reduction}}}")
    assert proof(original, program).proved
    (report,) = (r for r in program.reports if r.name == "gradient-accumulation")
    report.options["reduction"] = {"mean": "sum", "sum": "mean"}[reduction]
    assert not proof(original, program).proved


def test_what_an_update_takes_of_the_last_micro_batch_alone_is_said() -> None:
    original = load("gated_update")
    found = bc.prove(original, bc.compile(original, "gradient-accumulation{steps=3,carry=last}"))
    assert found.proved, show(found.proof)
    assert "takes the last micro-batch's value alone: " in found.proof.claim
    assert found.proof.besides in found.verdict()
    assert not bc.prove(original, bc.compile(original, "gradient-accumulation{steps=3,carry=mean}")).proved
    plain = bc.prove(load("mlp"), bc.compile(load("mlp"), "gradient-accumulation{steps=3}"))
    assert "alone" not in plain.proof.claim


WEIGHED = "gradient-accumulation{steps=3,reduction=weighted,weight=inputs0}"


@pytest.mark.parametrize("weight", ["inputs0", "loss"])
@pytest.mark.parametrize(
    "pipeline", [WEIGHED, WEIGHED.replace("}", ",split=fused}"), f"overflow-check,{WEIGHED},loss-scale"]
)
def test_micro_batches_of_other_weights_are_proved(pipeline: str, weight: str) -> None:
    original = load("mlp_adam_decay")
    found = bc.prove(original, bc.compile(original, pipeline.replace("inputs0", weight)))
    assert found.proved, show(found.proof)
    assert "weighted mean" in found.proof.claim


@pytest.mark.parametrize("options", [{"weight": "loss"}, {"reduction": "mean"}, {"reduction": "sum"}])
def test_the_weight_is_the_one_that_was_asked_for(options: dict[str, str]) -> None:
    original = load("mlp")
    program = bc.compile(original, WEIGHED)
    next(r for r in program.reports if r.name == "gradient-accumulation").options.update(options)
    assert not proof(original, program).proved


@pytest.mark.parametrize(("split", "graph"), [("apply", "accumulate"), ("fused", "accumulate"), ("fused", "step")])
def test_a_micro_batch_of_weight_zero_adds_nothing(split: str, graph: str) -> None:
    original = load("mlp")
    program = bc.compile(original, WEIGHED.replace("}", f",split={split}}}"))
    right = bc.prove(original, program)
    assert right.proved
    zeros = [n for n in program.graphs[graph] if n.op.name == "ZerosLike"]
    nothing, chosen = next((zero, user) for zero in zeros for user in zero.users if user.op.name == "Select")
    with program.graphs[graph].inserting_before(chosen):
        chosen.set_operand(2, program.graphs[graph].create("OnesLike", [nothing.operand(0)]))
    assert not proof(original, program).proved


@pytest.mark.parametrize("fault", ["none", "no sum", "own weight"])
def test_weights_are_summed_over_ranks(fault: str) -> None:
    original = load("mlp")
    program = bc.compile(original, f"{WEIGHED},data-parallel")
    weight, *_, bucket = sorted((n for n in program.graphs["apply"] if n.op.name == "AllReduce"), key=size)
    if fault != "none":
        left_out = bucket if fault == "no sum" else weight
        left_out.replace_uses(left_out.operand(0))
    assert proof(original, program).proved is (fault == "none")


def size(node: Node) -> int:
    assert isinstance(node.type, TensorType)
    return node.type.size


@pytest.mark.parametrize("split", ["apply", "fused"])
def test_a_micro_batch_of_weight_zero_is_not_dropped(split: str) -> None:
    original = load("mlp")
    weighed = WEIGHED.replace("}", f",split={split}}}")
    found = proof(original, bc.compile(original, f"overflow-check{{policy=skip-micro}},{weighed}"))
    assert found.proved, show(found)


@pytest.mark.parametrize("name", ["mlp", "mlp_adam_decay", "lenet_bn", "clip_global_norm"])
@pytest.mark.parametrize(
    "pipeline",
    [
        "data-parallel",
        "gradient-accumulation{steps=3},data-parallel",
        "gradient-accumulation{steps=3,split=fused,reduction=sum},data-parallel{fusion=0}",
        "overflow-check,gradient-accumulation{steps=3},loss-scale,data-parallel",
        "gradient-accumulation{steps=2},data-parallel{mean=false}",
    ],
)
def test_ranks_are_proved_however_many_they_are(name: str, pipeline: str) -> None:
    found = proof(load(name), bc.compile(load(name), pipeline))
    assert found.proved, show(found)
    assert "of all ranks" in found.claim or "over all ranks" in found.claim


@pytest.mark.parametrize("fault", ["no sum", "own count", "number of ranks", "other group", "shares of another"])
def test_a_fault_in_a_sum_over_ranks_is_not_proved(fault: str) -> None:
    original = load("mlp")
    program = bc.compile(original, "gradient-accumulation{steps=2},data-parallel")
    assert proof(original, program).proved
    graph = program.graphs["apply"]
    bucket, count = sorted((n for n in graph if n.op.name == "AllReduce"), key=lambda n: n.type.size, reverse=True)  # type: ignore[attr-defined]
    if fault == "no sum":
        bucket.replace_uses(bucket.operand(0))
    elif fault == "own count":
        count.replace_uses(count.operand(0))
    elif fault == "number of ranks":
        for divide in [n for n in graph if n.op.name == "RealDiv"]:
            divide.set_operand(1, graph.constant(scalar_tensor("float32", 2.0)))
    elif fault == "other group":
        bucket.set_attribute("group", "half")
    else:
        parts = [n for n in graph if n.op.name == "Slice"]
        parts[0].set_operand(1, parts[1].operand(1))
    assert not proof(original, program).proved


def test_overflow_and_loss_scale_are_proved_by_cases() -> None:
    original = load("mlp")
    found = proof(original, bc.compile(original, "loss-scale,overflow-check,gradient-accumulation{steps=2}"))
    assert found.proved, show(found)
    assert kinds(found)["loss_scale.value"] == OWN
    where = {v.detail for v in found.verdicts if v.name == "loss_scale.value"}
    assert where == {
        "by its rule where all gradients are finite",
        "by its rule where a gradient is not finite, nothing moves",
    }


@pytest.mark.parametrize(
    "pipeline",
    [
        "overflow-check",
        "weight-average{kind=lookahead,every=2}",
        "gradient-accumulation{steps=2},overflow-check,weight-average{kind=swa}",
        "gradient-accumulation{steps=2,split=fused},overflow-check,clip-gradients{limit=1.0}",
    ],
)
def test_a_program_follows_the_check_of_its_original(pipeline: str) -> None:
    """Both cases, of which the original says what its own states do; counts and averages go by its decision."""
    original = load("mlp_loss_scale_dynamic")
    found = bc.prove(original, bc.compile(original, pipeline))
    assert found.proved, found
    cases = {v.detail for v in found.proof.verdicts if v.kind == OWN}
    assert any("where all gradients are finite" in case for case in cases)
    assert any("the original stops its update itself" in case for case in cases)


def test_a_schedule_behind_the_check_of_the_original_has_no_law() -> None:
    original = load("mlp_loss_scale_dynamic")
    found = bc.prove(original, bc.compile(original, "schedule{kind=cosine,total=10,lr=0.1}"))
    assert "under a condition of its own, and no formula counts such updates: law missing" in repr(found)


@pytest.mark.parametrize("pipeline", ["overflow-check,gradient-accumulation{steps=2},loss-scale", "loss-scale"])
def test_a_loss_scale_goes_back_through_a_loop(pipeline: str) -> None:
    original = load("loop")
    found = bc.prove(original, bc.compile(original, pipeline))
    assert found.proved, show(found.proof)


TWO = """state %a: float32[2]<1.0, 2.0>
state %b: float32[2]<3.0, 4.0>
state %rate: float32[]<0.1>

graph @step(%x: float32[2], %y: float32[2]) -> (loss) {
  %l = Load(%a, umonad) : float32[2] primal {unique_id = "1"}
  %m = Load(%b, umonad) : float32[2] primal {unique_id = "2"}
  %p = Mul(%l, %x) : float32[2] primal {unique_id = "3"}
  %q = Mul(%m, %y) : float32[2] primal {unique_id = "4"}
  %sum = Add(%p, %q) : float32[2] primal {unique_id = "5"}
  %loss = ReduceSum(%sum, (), false, false) : float32[] primal {unique_id = "6"}
  %one = OnesLike(%sum) : float32[2] primal {forward_unique_id = "6"}
  %ga = Mul(%one, %x) : float32[2] primal {forward_unique_id = "3"}
  %gb = Mul(%one, %y) : float32[2] primal {forward_unique_id = "4"}
TESTS
  %t = UpdateState(umonad, %l)
  %u = UpdateState(%t, %m)
  %new = Assign(%a, %wa, %u) : float32[2]@a
  %v = UpdateState(%u, %new)
  %more = Assign(%b, %wb, %v) : float32[2]@b
  %w = UpdateState(%v, %more)
  %out = Depend(%loss, %w) : float32[]
  return %out
}
"""
STEP = "%da = Mul(%rate, %ga)\n%db = Mul(%rate, %gb)\n%na = Sub(%l, %da)\n%nb = Sub(%m, %db)\n"
CHECKS = "%ia = IsFinite(%ga)\n%ib = IsFinite(%gb)\n%ca = ReduceAll(%ia, (), false) : bool[]\n" + (
    "%cb = ReduceAll(%ib, (), false) : bool[]\n%c = LogicalAnd(%ca, %cb)\n"
)


@pytest.mark.parametrize(("condition_a", "condition_b", "right"), [("c", "c", True), ("ca", "cb", False)])
def test_one_gradient_that_is_not_finite_stops_all(condition_a: str, condition_b: str, right: bool, here: Path) -> None:
    """Each weight behind a test of its own gradient is another program."""
    tested = f"{CHECKS}%wa = Select(%{condition_a}, %na, %l)\n%wb = Select(%{condition_b}, %nb, %m)"
    for name, text in (("original", "%wa = Depend(%na, %l)\n%wb = Depend(%nb, %m)"), ("program", tested)):
        Path(f"{name}.ir").write_text(TWO.replace("TESTS", STEP + text))
    original, program = bc.load("original.ir"), bc.load("program.ir")
    assert proof(original, program).proved is right
    assert bc.prove(original, program).proved is right


CANCELS = '%h = Mul(%one, %y) : float32[2] primal {forward_unique_id = "4"}\n' + (
    '%k = Neg(%h) : float32[2] primal {forward_unique_id = "4"}\n'
    '%gb = Add(%h, %k) : float32[2] primal {forward_unique_id = "4"}\n'
)


@pytest.mark.parametrize("pipeline", ["overflow-check", "overflow-check,loss-scale", "loss-scale,overflow-check"])
def test_a_gradient_that_cancels_may_overflow(pipeline: str, here: Path) -> None:
    """As that of the last bias of two towers, whose results are subtracted: 0, unless its parts are infinite."""
    text = TWO.replace("TESTS", STEP + "%wa = Depend(%na, %l)\n%wb = Depend(%nb, %m)")
    line = next(line for line in text.splitlines() if line.strip().startswith("%gb ="))
    Path("original.ir").write_text(text.replace(line, CANCELS))
    original = bc.load("original.ir")
    program = bc.compile(original, pipeline)
    found = bc.prove(original, program)
    assert found.proved, show(found.proof)
    tests = [n for g in program.graphs.values() for n in g.all_nodes() if n.op.name == "IsFinite"]
    tests[-1].set_operand(0, tests[0].operand(0))  # one gradient twice, the other never
    assert not proof(original, program).proved


@pytest.mark.parametrize("split", ["apply", "fused"])
def test_dropped_micro_batches_are_cases_of_their_own(split: str) -> None:
    original = load("mlp")
    accumulation = f"gradient-accumulation{{steps=2,split={split}}}"
    found = proof(original, bc.compile(original, f"overflow-check{{policy=skip-micro}},{accumulation}"))
    assert found.proved, show(found)
    assert any("where some are kept" in v.detail for v in found.verdicts)


def one_number() -> str:
    """``TWO``, whose second weight is one number."""
    text = TWO.replace("TESTS", STEP + "%wa = Depend(%na, %l)\n%wb = Depend(%nb, %m)")
    lines = (
        text.replace("%y: float32[2]", "%y: float32[]").replace("float32[2]<3.0, 4.0>", "float32[]<3.0>").splitlines()
    )
    numbers = ("%m =", "%q =", "%gb =", "%more =")
    lines = [line.replace("float32[2]", "float32[]") if line.strip().startswith(numbers) else line for line in lines]
    one = '%all = ReduceSum(%one, (), false, false) : float32[] primal {forward_unique_id = "4"}'
    at = next(i for i, line in enumerate(lines) if line.strip().startswith("%gb ="))
    lines[at : at + 1] = [one, lines[at].replace("%one", "%all")]
    return "\n".join(lines)


@pytest.mark.parametrize(
    "pipeline",
    [
        "gradient-accumulation{steps=2},overflow-check{policy=skip-micro}",
        "monitor",
        "monitor,gradient-accumulation{steps=2},overflow-check",
        "data-parallel,gradient-accumulation{steps=2}",
        "data-parallel,gradient-accumulation{steps=2,split=fused},overflow-check,loss-scale",
    ],
)
def test_a_weight_may_be_one_number(pipeline: str, here: Path) -> None:
    """A temperature, say. The test of its gradient is one with that of all its elements, and a monitor's decides
    nothing."""
    Path("original.ir").write_text(one_number())
    original = bc.load("original.ir")
    found = bc.prove(original, bc.compile(original, pipeline))
    assert found.proved, show(found.proof)


@pytest.mark.parametrize("fault", ["not summed", "own count"])
def test_a_number_is_summed_over_ranks(fault: str, here: Path) -> None:
    Path("original.ir").write_text(one_number())
    original = bc.load("original.ir")
    program = bc.compile(original, "data-parallel,gradient-accumulation{steps=2}")
    assert bc.prove(original, program).proved
    graph = program.graphs["apply"]
    count, bucket = sorted((n for n in graph if n.op.name == "AllReduce"), key=lambda n: n.type.size)  # type: ignore[attr-defined]
    one = bucket if fault == "not summed" else count
    one.replace_uses(one.operand(0))
    assert not proof(original, program).proved


def test_a_divisor_that_is_off_is_not_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    real = accumulation.declare_divisor

    def declare(node: Node, **options: object) -> Node:
        graph = node.graph
        assert graph is not None
        return real(graph.create("Mul", [node, graph.constant(scalar_tensor("float32", 1.0001))]), **options)  # type: ignore[arg-type]

    monkeypatch.setattr(accumulation, "declare_divisor", declare)
    original = load("mlp")
    found, terms = prove(original, bc.compile(original, "gradient-accumulation{steps=2}"))
    assert {v.name for v in found.failures} >= {"hidden.weight", "moments.hidden.weight"}
    (first, *_) = found.failures
    assert first.expected is not None
    assert first.found is not None
    assert terms.heads[first.expected] != terms.heads[first.found]


def test_another_initial_value_is_not_proved() -> None:
    original = load("mlp")
    program = bc.compile(original, "gradient-accumulation{steps=2}")
    changed = program.with_values({"output.bias": program.state["output.bias"].initial + np.float32(1e-3)})
    assert [v.name for v in proof(original, changed).failures] == ["output.bias"]


def test_a_race_is_not_proved() -> None:
    """Two writes of one state that nothing orders."""
    original = load("mlp")
    program = bc.compile(original, "gradient-accumulation{steps=2}")
    graph = program.graphs["apply"]
    clear = next(n for n in graph if n.op.name == "Assign" and n.operand(0).name == "accumulation.count")
    first = next(v for n in graph for v in n.operands if v.name.startswith("ValueNode") and not v.uses.get(clear))
    token = graph.constant(bc.load(MATERIAL / "mlp.ir").graphs["step"].states and _umonad())
    clear.set_operand(2, token)
    found = proof(original, program)
    assert not found.proved
    assert any("race" in v.detail for v in found.failures), show(found)
    del first


def _umonad() -> object:
    from boost_compile.ir.core.attributes import MonadValue

    return MonadValue("umonad")


def test_the_schedule_is_part_of_the_claim() -> None:
    """A cycle that updates twice, and one whose micro-batches are counted by another state."""
    original = load("mlp")
    program = bc.compile(original, "gradient-accumulation{steps=2}")
    right = program.schedule
    program.schedule = replace(right, cycle=(right.cycle[0], replace(right.cycle[1], repeat=2)))
    assert "updates 2 times" in proof(original, program).failures[0].detail
    program.schedule = replace(right, count="accum.output.bias")
    assert [v.name for v in proof(original, program).failures] == ["accum.output.bias"]


@pytest.mark.parametrize("cycle", ["", "gradient-accumulation{steps=2}", "overflow-check,loss-scale"])
def test_what_is_measured_is_left_alone(cycle: str) -> None:
    original = load("mlp")
    found = bc.prove(original, bc.compile(original, f"{cycle},monitor".strip(",")))
    assert found.proved, show(found.proof)


def test_what_has_no_law_says_so() -> None:
    original = load("mlp")
    found = proof(original, bc.compile(original, "adasum"))
    assert not found.proved
    assert {v.kind for v in found.verdicts} == {UNPROVED}
    assert "pass 'adasum' changes training on purpose" in found.failures[0].detail
    assert "law missing" in found.failures[0].detail


def test_what_an_unproved_variant_freezes_is_not_judged() -> None:
    original = load("mlp")
    found = proof(original, bc.compile(original, "adasum,gradient-freeze"))
    assert not found.proved
    assert {v.detail.split(":")[0] for v in found.failures} == {
        "pass 'adasum' changes training on purpose, and no formula says how"
    }


def test_cost_is_linear() -> None:
    """Twice the nodes, twice the terms; and a residual network does not become a product of sums."""
    counts = []
    for nodes in (600, 1200):
        original = layers(nodes)
        found, terms = prove(original, bc.compile(original, "gradient-accumulation{steps=2}"))
        assert found.proved, show(found)
        counts.append(len(terms))
    assert 1.8 < counts[1] / counts[0] < 2.2
