"""Seeds of whole networks: where a factor must be multiplied so that every gradient comes out multiplied.

Judged by execution: a graph whose seeds are multiplied by 1024 and whose gradients are divided by it trains bit for bit
as before, since powers of two round nothing in float32. A seed that was missed, or met twice, is off by 1024.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from boost_compile.ir.analysis.derivative.linearity import Seed, find_seeds
from boost_compile.ir.analysis.training.anatomy import anatomy
from boost_compile.ir.analysis.training.network import BACKWARD, network_parts
from boost_compile.ir.builders.cast import cast
from boost_compile.ir.core.attributes import scalar_tensor
from boost_compile.ir.core.graph import Graph, Node, State, Value, tensor_type
from boost_compile.ir.core.types import DType
from boost_compile.ir.rewrite.scale_seeds import scale_seeds
from boost_compile.ir.verify.verifier import verify
from boost_compile.passes.step.split import find_cut

import boost_compile as bc
from tests.compare import assert_close, assert_equal
from tests.native import initial_state
from tests.networks import CASES, Batch, names

Exported = Callable[[str], Path]
Use = tuple[Node, int]

# -- by execution ----------------------------------------------------------------------------------------------

SCALE = 1024.0
HALF = [n for n in names("half", runs_on_cpu=True) if n != "residual_half"]
"""In ``residual_half`` float16 rounds so many gradients to zero that nothing can be compared without a factor."""
FLOAT32 = [n for n in names(runs_on_cpu=True, without=("refused",)) if n not in (*HALF, "residual_half")]
QUICK = [
    *names("loss")[::2],
    *("mlp", "grouped_conv", "dropout", "recurrence_unrolled", "loop_weights", "branch_state", "stopped_target"),
    *("clip_global_norm", "residual_after"),
]
"""Beside those that tests/passes/test_loss_scale.py trains: the same walk, by the pass itself."""
SLOW = [n for n in FLOAT32 if n not in QUICK]
"""The same backward parts under other optimizers and training cells, and deep networks."""


def quick_and_slow(quick: list[str], slow: list[str]) -> list[Any]:
    return [*quick, *(pytest.param(name, marks=pytest.mark.slow) for name in slow)]


def gradient_uses(graph: Graph) -> list[Use]:
    return [use for crossing in find_cut(anatomy(graph)).gradients for use in crossing.uses]


def scaled(program: bc.Program) -> tuple[list[Seed], list[Node]]:
    """Multiplies the seeds and divides the gradients, in place; the seeds and the Muls."""
    (graph,) = program.graphs.values()
    wanted = gradient_uses(graph)
    seeds = find_seeds(graph, network_parts(graph), wanted)
    muls = scale_seeds(graph, seeds, graph.constant(scalar_tensor("float32", SCALE)), scope="test")
    for user, i in wanted:
        value = user.operand(i)
        with graph.inserting_before(user):
            wide = cast(graph, value, DType.FLOAT32)
            divided = graph.create("Mul", [wide, graph.constant(scalar_tensor("float32", 1 / SCALE))])
            user.set_operand(i, cast(graph, divided, tensor_type(value).dtype))
    verify(program)
    return seeds, muls


def trained(program: bc.Program, batches: list[Batch]) -> dict[str, np.ndarray]:
    session = bc.Session(program, device="CPU")
    for batch in batches:
        session.step(*batch)
    return session.state()


def both(path: Path, name: str) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The states after two steps: of the graph with multiplied seeds, and of the file."""
    ours = bc.load(str(path))
    scaled(ours)
    batches = CASES[name].batches(2)
    return trained(ours, batches), trained(bc.load(str(path)), batches)


@pytest.mark.parametrize("name", quick_and_slow(QUICK, SLOW))
def test_every_gradient_is_multiplied_by_exactly_the_factor(exported: Exported, name: str) -> None:
    ours, plain = both(exported(name), name)
    assert any((plain[key] != value).any() for key, value in initial_state(name).items() if key in plain)
    assert_equal(ours, plain)


@pytest.mark.parametrize("name", HALF)
def test_half_precision(exported: Exported, name: str) -> None:
    """What float16 rounds to zero without the factor survives with it: equal up to that."""
    ours, plain = both(exported(name), name)
    initial = {key: value for key, value in initial_state(name).items() if key in plain}
    assert_close(ours, plain, initial, 5e-2, noise=rounding_only(plain))


def rounding_only(state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Masks of weights whose gradient is zero but for float16's rounding (a bias in front of BatchNorm): all that is in
    their momentum is far below that of their layer."""
    sizes = {key[len("moments.") :]: np.abs(v).max() for key, v in state.items() if key.startswith("moments.")}
    layers: dict[str, float] = {}
    for weight, size in sizes.items():
        layer = weight.rpartition(".")[0]
        layers[layer] = max(layers.get(layer, 0.0), size)
    small = [w for w, size in sizes.items() if size <= 1e-3 * layers[w.rpartition(".")[0]]]
    return {weight: np.ones(state[weight].shape, bool) for weight in small}


# -- near the loss ---------------------------------------------------------------------------------------------

SEEDS = {
    "mlp": ["SparseSoftmaxCrossEntropyWithLogits"],
    "mlp_half_weights": ["SparseSoftmaxCrossEntropyWithLogits"],
    "regression_mse": ["constant"],
    "binary_cross_entropy": ["constant"],
    "binary_cross_entropy_logits": ["constant"],
    "token_cross_entropy_masked": ["constant"],
    "cross_entropy_dense": ["constant"],
    "cross_entropy_sum": ["constant"],
    "cross_entropy_rows": ["constant"],
    "l1": ["constant"],
    "smooth_l1": ["constant"],
    "huber": ["constant"],
    "nll": ["constant"],
    "kl": ["constant"],
    "root_mean_square": ["constant"],
    "log_cosh": ["constant"],
    "hinge": ["constant"],
    "worst": ["constant"],
    "focal": ["constant"],
    "poisson": ["constant"],
    "transcription": ["constant"],
    "contrastive": ["SparseSoftmaxCrossEntropyWithLogits"],
    "shared_weights": ["SparseSoftmaxCrossEntropyWithLogits"],
    "gpt_tied": ["constant"],
    "at_once": ["constant"],
    "branch": ["SparseSoftmaxCrossEntropyWithLogits"],
    "loop": ["SparseSoftmaxCrossEntropyWithLogits"],
    "loop_weights": ["SparseSoftmaxCrossEntropyWithLogits"],
    "branch_in_loop": ["SparseSoftmaxCrossEntropyWithLogits"],
    "own_backward": ["SparseSoftmaxCrossEntropyWithLogits"],
    "own_loss_backward": ["Muls"],
    "lstm": ["SparseSoftmaxCrossEntropyWithLogits"],
    # Sums of losses have a seed for each term: a constant that both share is one.
    "cross_entropy_smoothed": ["constant", "constant"],
    "two_heads": ["SparseSoftmaxCrossEntropyWithLogits", "constant"],
    "gradient_penalty": ["constant", "constant"],
    "penalized": ["PowTensorScalar", "PowTensorScalar", "SparseSoftmaxCrossEntropyWithLogits"],
}
"""The seeds of a case: the primitive that computes it, or a constant: the derivative of the loss by itself."""


@pytest.mark.parametrize("name", SEEDS)
def test_the_factor_enters_at_the_loss(exported: Exported, name: str) -> None:
    program = bc.load(str(exported(name)))
    seeds, muls = scaled(program)
    kinds = [s.value.op.name if isinstance(s.value, Node) else type(s.value).__name__.lower() for s in seeds]
    assert sorted(kinds) == sorted(SEEDS[name])
    assert len(muls) == len(seeds)


@pytest.mark.parametrize("name", quick_and_slow([n for n in [*QUICK, *HALF] if n != "loss_in_branch"], SLOW))
def test_no_seed_stands_behind_another_backward_node(exported: Exported, name: str) -> None:
    """A seed is made of forward values, but for one step of the derivative of the loss itself."""
    (graph,) = bc.load(str(exported(name))).graphs.values()
    parts = network_parts(graph)
    for seed in find_seeds(graph, parts, gradient_uses(graph)):
        behind = {v for v in ancestors(seed.value) if isinstance(v, Node) and parts.get(v) == BACKWARD}
        assert len(behind) <= 1, seed


def ancestors(value: Value) -> set[Value]:
    found: set[Value] = set()
    stack = [value]
    while stack:
        here = stack.pop()
        if isinstance(here, Node) and here.op.name != "UpdateState":
            for operand in here.operands[:1] if here.op.name == "Depend" else here.operands:
                if operand not in found and not isinstance(operand, State):
                    found.add(operand)
                    stack.append(operand)
    return found


def test_a_loss_inside_a_branch_is_multiplied_where_the_branch_returns(exported: Exported) -> None:
    """The derivative starts inside the functions, where no factor is known."""
    (graph,) = bc.load(str(exported("loss_in_branch"))).graphs.values()
    (seed,) = find_seeds(graph, network_parts(graph), gradient_uses(graph))
    assert isinstance(seed.value, Node)
    assert seed.value.op.name == "TupleGetItem"
    assert seed.value.graph is graph


@pytest.mark.parametrize("name", ["mlp", "token_cross_entropy_masked", "gpt_tied", "loop"])
def test_an_accumulating_graph_has_the_seeds_of_the_step(exported: Exported, name: str) -> None:
    """Its update side only adds to accumulators."""
    source = bc.load(str(exported(name)))
    graph = bc.compile(source, "gradient-accumulation{steps=2,reduction=mean}").graphs["accumulate"]
    parts = network_parts(graph)
    wanted = [
        (node, 1)
        for node in graph
        if node.op.name == "AssignAdd" and isinstance(v := node.operand(1), Node) and parts.get(v) == BACKWARD
    ]
    (step,) = source.graphs.values()
    own = [seed.value.name for seed in find_seeds(step, network_parts(step), gradient_uses(step))]
    assert [seed.value.name for seed in find_seeds(graph, parts, wanted)] == own
