"""Legalization: what no CPU could run trains on one exactly as MindSpore trains where it can be asked.

The judge is `tests.loss_scale`, bit for bit: the same losses, the same skipped steps, the same scales, the same weights
and slots after every step.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from boost_compile.ir.analysis.targets import has_kernel, targets_of
from boost_compile.ir.analysis.training.anatomy import anatomy
from boost_compile.ir.core.graph import Node, tensor_type
from boost_compile.ir.core.primitives import PRIMITIVES
from boost_compile.ir.core.program import Program
from boost_compile.ir.text import parse_program
from boost_compile.passes.legalize import Legalize

import boost_compile as bc
from tests.boundary import slow
from tests.compare import assert_equal
from tests.linear_cost import assert_linear
from tests.loss_scale import spoiled, train_scaled
from tests.networks import CASES, Batch, export, names
from tests.networks.loss_scale import dynamic

Exported = Callable[[str], Path]
CELLS = names("loss-scale-cell")
STEPS = 14
SPOILED = {2: np.inf, 5: 1e38, 9: np.nan, 10: -1e38}
ACCUMULATED = [
    *("scaled_dynamic", "scaled_gpu", "scaled_910a", "scaled_allocated", "scaled_lenet_adam", "scaled_half_compute"),
    *slow("scaled_gpt"),  # half precision as in scaled_half_compute, in a network that takes long to compile
]
TRAINED_BELOW = ["scaled_gpt", "scaled_gpu", "scaled_910a", "scaled_allocated", "scaled_half_compute"]
"""With accumulation, by default; the first one only in the long sweeps, since it takes long to compile."""
TARGETS = ["cpu", "gpu", "ascend"]


def legal(path: Path, target: str = "cpu") -> Program:
    return bc.compile(bc.load(str(path)), f"legalize{{target={target}}}")


def batches_of(name: str, count: int, steps: dict[int, float] = SPOILED) -> list[Batch]:
    """Batches some of which overflow. Tokens cannot: there it is the scale alone that makes gradients overflow."""
    batches = CASES[name].batches(count)
    return spoiled(batches, steps) if batches[0][0].dtype == np.float32 else batches


def primitives(program: Program) -> set[str]:
    return {node.op.name for node in all_nodes(program)}


def all_nodes(program: Program) -> list[Node]:
    return [node for main in program.graphs.values() for graph in main.all_graphs() for node in graph]


@pytest.mark.parametrize("name", [*(n for n in CELLS if n not in TRAINED_BELOW), *slow(*TRAINED_BELOW)])
def test_trains_as_mindspore_does(exported: Exported, name: str) -> None:
    batches = batches_of(name, STEPS)
    expected = train_scaled(name, [[batch] for batch in batches])
    assert 0 < sum(expected.skipped) < STEPS - 3, "the test must see both"
    session = bc.Session(legal(exported(name)), device="CPU")
    for i, batch in enumerate(batches):
        result = session.step(*batch)
        found = (result.overflow, result.updated, result.loss_scale)
        assert found == (expected.skipped[i], not expected.skipped[i], expected.scales[i]), f"step {i}"
        np.testing.assert_equal(result.loss, expected.losses[i][0], f"step {i}")
        assert_equal(session.state(), expected.states[i])


@pytest.mark.slow
@pytest.mark.parametrize("name", names("optimizer", runs_on_cpu=True))
def test_every_optimizer_behind_the_condition(tmp_path: Path, name: str) -> None:
    case = replace(CASES[name], wrap=dynamic(2.0**10, 2))
    batches = spoiled(case.batches(5), {1: np.inf, 3: 1e38})
    expected = train_scaled(case, [[batch] for batch in batches])
    session = bc.Session(legal(export(case, tmp_path)), device="CPU")
    results = [session.step(*batch) for batch in batches]
    assert [r.overflow for r in results] == expected.skipped == [False, True, False, True, False]
    assert [r.loss_scale for r in results] == expected.scales
    state = session.state()
    assert_equal(state, {n: expected.states[-1][n] for n in state})


@pytest.mark.parametrize("split", [*slow("apply"), "fused"])
@pytest.mark.parametrize("name", ACCUMULATED)
def test_one_bad_micro_batch_skips_the_cycle(exported: Exported, name: str, split: str) -> None:
    """The bad one stands at every place of a cycle in turn; the cycles between them train."""
    steps = 4
    batches = batches_of(name, 10 * steps, {steps * (2 * i + 1) + i: SPOILED[2 if i % 2 else 5] for i in range(4)})
    cycles = [batches[i : i + steps] for i in range(0, len(batches), steps)]
    expected = train_scaled(name, cycles)
    assert 3 <= sum(expected.skipped) < len(cycles) - 3, "the test must see both"
    pipeline = f"legalize{{target=cpu}},gradient-accumulation{{steps={steps},split={split}}}"
    program = bc.compile(bc.load(str(exported(name))), pipeline)
    accumulators = [n for n, v in program.state.items() if v.role in ("accumulator", "counter")]
    own = {n for n, v in program.state.items() if v.role in ("accumulator", "counter", "carried")}
    session = bc.Session(program, device="CPU")
    for i, cycle in enumerate(cycles):
        results = [session.step(*batch) for batch in cycle]
        np.testing.assert_equal([r.loss for r in results], expected.losses[i], f"cycle {i}")
        assert [r.updated for r in results] == [False] * (steps - 1) + [not expected.skipped[i]], f"cycle {i}"
        assert (results[-1].overflow, results[-1].loss_scale) == (expected.skipped[i], expected.scales[i]), f"cycle {i}"
        state = session.state()
        assert not any(state[n].any() for n in accumulators), f"cycle {i} left its gradients behind"
        assert_equal({n: value for n, value in state.items() if n not in own}, expected.states[i])


def test_the_status_is_still_summed_over_ranks(exported: Exported) -> None:
    """Of one rank here: the sum is what this rank says."""
    program = legal(exported("scaled_over_ranks"))
    (graph,) = program.graphs.values()
    sums = [node for node in graph if node.op.name == "AllReduce"]
    assert len(sums) == 1
    for node in sums:
        node.replace_uses(node.operand(0))
        graph.erase(node)
    session = bc.Session(program, device="CPU")
    batches = batches_of("scaled_over_ranks", STEPS)
    expected = train_scaled("scaled_over_ranks", [[batch] for batch in batches])
    assert [session.step(*batch).overflow for batch in batches] == expected.skipped
    assert_equal(session.state(), expected.states[-1])


@pytest.mark.parametrize("name", [n for n in CELLS if n != "scaled_asked_in_branch"])
def test_every_gradient_is_tested_once(exported: Exported, name: str) -> None:
    program = legal(exported(name))
    (graph,) = program.graphs.values()
    tested = [node for node in graph if node.op.name == "IsFinite"]
    assert len(tested) == len({gradient for info in anatomy(graph).weights for gradient in info.gradient})
    assert len({node.operand(0) for node in tested}) == len(tested)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", [*CELLS, "mlp_momentum_centralized", "mlp_half_weights"])
def test_only_primitives_that_the_target_has(exported: Exported, tmp_path: Path, name: str, target: str) -> None:
    import mindspore as ms

    source = bc.load(str(exported(name)))
    if (name, target) == ("scaled_lstm", "gpu"):
        told = r"no gpu kernel for LSTM with weights that are packed for another device .* compile for ascend and cpu"
        with pytest.raises(bc.Error, match=told):
            bc.compile(source, [Legalize(target=target)])
        return
    needed = Legalize.needed_for(source, target)
    program = bc.compile(source, [Legalize(target=target)])
    assert program.reports[0].changed == len(needed)
    assert Legalize.needed_for(program, target) == []
    assert all(has_kernel(node, target) for node in all_nodes(program))
    assert primitives(program) <= primitives(source) | PRIMITIVES.keys()
    assert program.target == target
    program.save(str(tmp_path / "alone.mindir"))
    ms.load(str(tmp_path / "alone.mindir"))


def test_what_passes_insert_runs_everywhere() -> None:
    """By MindSpore's own documentation, of the primitive's class or of the function that wraps it."""
    import mindspore

    wrapped = {
        "Concat": "cat", "IsFinite": "isfinite", "IsNan": "isnan", "IsInf": "isinf", "ReduceAll": "all",
        "ReduceAny": "any",
    }  # fmt: skip
    inserted = [
        "Add", "AddN", "AllGather", "AllReduce", "Assign", "AssignAdd", "BroadcastTo", "Cast", "Concat", "Depend",
        "Equal", "Greater", "GreaterEqual", "IsFinite", "IsInf", "IsNan", "LessEqual", "LogicalAnd", "LogicalNot",
        "LogicalOr", "Maximum", "Minimum", "Mul", "NotEqual",
        "RealDiv", "Reciprocal", "ReduceAll", "ReduceAny", "ReduceMax", "ReduceMean", "ReduceSum", "Reshape", "Select",
        "Slice", "Sqrt", "Square", "Sub", "ZerosLike",
    ]  # fmt: skip
    for name in inserted:
        assert set(targets_of(name)) == set(TARGETS) or name == "Depend"
        words = re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
        documented = set()
        for place, known in ((mindspore.ops.operations, name), (mindspore.ops, wrapped.get(name, words))):
            text = getattr(place, known, None).__doc__ or ""
            for line in re.findall(r"Supported Platforms:\s*\n\s*(``.*)", text):
                documented |= {platform.lower() for platform in re.findall(r"``(\w+)``", line)}
        assert documented == set(TARGETS), name


def test_each_target_keeps_what_it_has(exported: Exported) -> None:
    held = {
        (name, target): primitives(legal(exported(name), target)) & {"NPUGetFloatStatusV2", "FloatStatus", "AllFinite"}
        for name in ("scaled_dynamic", "scaled_gpu", "scaled_910b")
        for target in TARGETS
    }
    kept = {
        ("scaled_dynamic", "ascend"): {"NPUGetFloatStatusV2"},
        ("scaled_gpu", "gpu"): {"FloatStatus"},
        ("scaled_910b", "ascend"): {"AllFinite"},
    }
    assert held == {key: kept.get(key, set()) for key in held}


@pytest.mark.parametrize("name", ["mlp_half_compute", "mlp_half_weights", "scaled_half_compute"])
def test_a_training_in_half_precision_is_made_for_a_gpu(exported: Exported, name: str) -> None:
    program = bc.compile(bc.load(str(exported(name))), "gradient-accumulation{steps=2}", target="gpu")
    loss = "SparseSoftmaxCrossEntropyWithLogits"
    assert {tensor_type(node.operand(0)).dtype for node in all_nodes(program) if node.op.name == loss} == {"float32"}
    assert [node for node in all_nodes(program) if not has_kernel(node, "gpu")] == []


@pytest.mark.parametrize("name", ["mlp", "lenet_bn_adam", "branch", "mlp_asgd"])
def test_a_legal_program_is_left_as_it_is(exported: Exported, name: str) -> None:
    source = bc.load(str(exported(name)))
    program = bc.compile(source, "legalize")
    assert program.reports[0].matched == 0
    assert [(n.name, n.op, [v.name for v in n.operands]) for n in all_nodes(program)] == [
        (n.name, n.op, [v.name for v in n.operands]) for n in all_nodes(source)
    ]


def test_the_target_is_that_of_the_program_unless_named(exported: Exported) -> None:
    source = bc.load(str(exported("scaled_gpu")))
    assert "FloatStatus" not in primitives(bc.compile(source, "legalize"))
    source.target = "gpu"
    assert "FloatStatus" in primitives(bc.compile(source, "legalize"))
    assert "FloatStatus" not in primitives(bc.compile(source, "legalize{target=ascend}"))


@pytest.mark.parametrize(
    ("name", "outputs"),
    [
        *((name, ("loss", "overflow", "loss_scale")) for name in CELLS if name != "scaled_partly_awaited"),
        ("scaled_partly_awaited", ("loss", "loss_scale", "overflow")),
        ("accuracy", ("loss", "output1", *(f"output{2 + weight}" for weight in range(4)))),  # a flag for each weight
        ("meters", ("loss", "output1")),
        ("mlp", ("loss",)),
    ],
)
def test_results_are_named_by_what_they_do(exported: Exported, name: str, outputs: tuple[str, ...]) -> None:
    program = legal(exported(name))
    (graph,) = program.graphs.values()
    assert graph.outputs == outputs
    assert "scale_sense" not in program.state or program.state["scale_sense"].role == "hyperparameter"


def many_weights(count: int, question: list[str]) -> str:
    """The text of a step that trains ``count`` weights while ``%fine``, which ``question`` defines from ``%all``."""
    each = range(count)
    states = [f"state %w{i}: float32[2] role=weight" for i in each]
    forward = [
        line
        for i in each
        for line in (
            f'%l{i} = Load(%w{i}, umonad) : float32[2] primal {{unique_id = "l{i}"}}',
            f'%y{i} = Mul(%l{i}, %x) : float32[2] primal {{unique_id = "{i}"}}',
        )
    ]
    loss = [
        f'%ys = MakeTuple({", ".join(f"%y{i}" for i in each)}) primal {{unique_id = "a"}}',
        '%sum = AddN(%ys) : float32[2] primal {unique_id = "b"}',
        '%loss = ReduceSum(%sum, none, false) : float32[] primal {unique_id = "c"}',
    ]
    backward = [f'%g{i} = Mul(%x, float32[]<{i}.5>) : float32[2] primal {{forward_unique_id = "{i}"}}' for i in each]
    gradients = [f"%all = MakeTuple({', '.join(f'%g{i}' for i in each)})"]
    update = [
        "%rate = Select(%fine, float32[]<0.1>, float32[]<0.0>) : float32[]",
        f"%u = UpdateState(umonad, {', '.join(f'%l{i}' for i in each)})",
        *(f"%m{i} = Mul(%g{i}, %rate) : float32[2]" for i in each),
        *(f"%a{i} = AssignSub(%w{i}, %m{i}, %u) : float32[2]" for i in each),
        f"%as = MakeTuple({', '.join(f'%a{i}' for i in each)})",
        "%v = UpdateState(%u, %as)",
        "%r = Depend(%loss, %v)",
        "return %r",
    ]
    body = [*forward, *loss, *backward, *gradients, *question, *update]
    return "\n".join([*states, "graph @step(%x: float32[2]) {", *body, "}"])


@pytest.mark.parametrize(
    "question",
    [
        [
            "%waiting = Depend(int32[8]<zeros>, %all)",
            "%status = NPUGetFloatStatusV2(%waiting) : int32[8]",
            "%zero = Equal(int32[]<0>, %status) : bool[8]",
            "%fine = ReduceAll(%zero, none, false) : bool[]",
        ],
        ["%overflow = AllFinite(%all) : bool[]", "%fine = LogicalNot(%overflow)"],
    ],
    ids=["status", "all_finite"],
)
def test_the_cost_is_linear_in_the_gradients(question: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def prepare(program: Program) -> Callable[[], object]:
        copy = program.copy()
        return lambda: Legalize(target="cpu").run(copy)

    programs = [parse_program(many_weights(count, question)) for count in (100, 200, 400)]
    assert_linear(monkeypatch, prepare, programs)
