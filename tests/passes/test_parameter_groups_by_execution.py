"""parameter-groups against the same graph with the group's numbers written into it, run with numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from boost_compile.ir.core.graph import Constant
from boost_compile.ir.core.program import Program
from boost_compile.passes import compile_program

from tests import graphs
from tests.execution import ORDERS, Arrays, train
from tests.material import material

from .graphs import NETWORK

HEAD = (
    """
state %v: float32[2,2] role=weight
state %w: float32[2,2] role=weight
state %m_v: float32[2,2] role=slot
state %m_w: float32[2,2] role=slot
state %s_v: float32[2,2] role=slot
state %s_w: float32[2,2] role=slot
state %rate: float32[] role=hyperparameter
state %other: float32[] role=hyperparameter
graph @step(%x: float32[2,2]) -> (loss) {
"""
    + NETWORK
)
TAIL = """
  %end = UpdateState(%t, %up_v, %up_w)
  %r = Depend(%loss, %end)
  return %r
"""
DECAYED = """
  %decay_P = Mul(%P0, float32[]<DECAY>)
  %g_P = Add(%dP, %decay_P)
"""
MOVE = """
  func @move_P(%p: float32[2,2], %q: float32[], %g: float32[2,2], %u: umonad) {
    BODY
    %u2 = UpdateState(%u, %up)
    %done = Depend(%up, %u2)
    return %done
  }
"""
BOUND = """
  %t_P = UpdateState(%t, %moved_P)
  %new_P = Load(%P, %t_P)
  %least_P = Minimum(%new_P, float32[]<0.3>)
  %up_P = Assign(%P, %least_P, %t_P)
"""
IN_FUNCTION = "  %up_P = call(@move_P, %P, RATE, %g_P, %t) : float32[2,2]"
OPTIMIZERS = {
    "descent": (f"{DECAYED}  %up_P = ApplyGradientDescent(%P, RATE, %g_P, %t) : float32[2,2]", ""),
    "sgd": (
        "  %up_P = SGD(%P, %dP, RATE, %m_P, float32[]<0.5>, %s_P, %t) {dampening = 0.0, weight_decay = DECAY}"
        " : float32[2,2]",
        "",
    ),
    "sgd behind a decay": (
        f"{DECAYED}  %up_P = SGD(%P, %g_P, RATE, %m_P, float32[]<0.5>, %s_P, %t)"
        " {dampening = 0.0, weight_decay = 0.0} : float32[2,2]",
        "",
    ),
    "adam": (
        "  %up_P = AdamWeightDecay(%P, %m_P, %s_P, RATE, float32[]<0.5>, float32[]<0.75>, float32[]<0.01>,"
        " float32[]<DECAY>, %dP, %t) : (float32[2,2], float32[2,2], float32[2,2])",
        "",
    ),
    "in a function": (
        f"{DECAYED}{IN_FUNCTION}",
        MOVE.replace("BODY", "%up = ApplyGradientDescent(%p, %q, %g, %u) : float32[2,2]"),
    ),
    "decay in a function": (
        IN_FUNCTION.replace("%g_P", "%dP"),
        MOVE.replace(
            "BODY",
            """%half = Mul(%g, float32[]<0.5>)
    %old = Load(%p, %u)
    %decay = Mul(%old, float32[]<DECAY>)
    %sum = Add(%half, %decay)
    %up = ApplyGradientDescent(%p, %q, %sum, %u) : float32[2,2]""",
        ),
    ),
    "ftrl": (
        "  %up_P = ApplyFtrl(%P, %s_P, %m_P, %dP, RATE, float32[]<0.01>, float32[]<0.02>, float32[]<-0.5>, %t)"
        " : float32[2,2]",
        "",
    ),
    "composed": (
        "  %now_P = Load(RATE, umonad)\n  %move_P = Mul(%dP, %now_P)\n  %up_P = AssignSub(%P, %move_P, %t)",
        "",
    ),
    "composed in a function": (
        "  %g_P = Neg(%dP)\n" + IN_FUNCTION,
        MOVE.replace(
            "BODY", "%now = Load(%q, %u)\n    %move = Mul(%g, %now)\n    %up = AssignAdd(%p, %move, %u) : float32[2,2]"
        ),
    ),
    "descent, bounded": (f"{DECAYED}  %moved_P = ApplyGradientDescent(%P, RATE, %g_P, %t) : float32[2,2]{BOUND}", ""),
    "composed, bounded": (
        f"  %now_P = Load(RATE, umonad)\n  %move_P = Mul(%dP, %now_P)\n  %moved_P = AssignSub(%P, %move_P, %t){BOUND}",
        "",
    ),
}
"""An update of the weight P, with its learning rate and decay; and a function that it calls. What bounds the weight
behind it is the cell's own."""
IN_FUNCTIONS = ("in a function", "decay in a function")


def step(optimizer: str, rate: str = "%rate", decay: float = 0.125) -> Program:
    """``rate`` and ``decay`` are those of %w; %v learns by %rate and decays by 0.125."""

    def of(name: str, rate: str, decay: float) -> list[str]:
        return [t.replace("P", name).replace("RATE", rate).replace("DECAY", str(decay)) for t in OPTIMIZERS[optimizer]]

    (first, function), (second, other) = of("v", "%rate", 0.125), of("w", rate, decay)
    return graphs.program("\n".join([HEAD, first, second, TAIL, function, other, "}"]))


def state(factor: float) -> Arrays:
    rng = np.random.default_rng(3)
    names = ("v", "w", "m_v", "m_w", "s_v", "s_w")
    arrays = {name: np.abs(rng.standard_normal((2, 2))).astype(np.float32) for name in names}
    return arrays | {"rate": np.float32(0.25), "other": np.float32(0.25 * factor)}


BATCHES = [[np.array([[0.5, -1.0], [2.0, 0.25]], np.float32)], [np.array([[1.5, 0.5], [-2.0, 1.0]], np.float32)]]


def same(found: Program, wanted: Program, factor: float = 1.0) -> None:
    reference = train(wanted, state(factor), BATCHES)[1]
    for order in ORDERS:
        memory = train(found, state(factor), BATCHES, order)[1]
        for name in reference:
            np.testing.assert_allclose(memory[name], reference[name], rtol=1e-5, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("before", ["", "overflow-check,", "gradient-accumulation{steps=2},"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_an_own_rate_is_another_rate_in_the_file(optimizer: str, before: str) -> None:
    """Of a primitive the rate is multiplied, and so is what it makes of its slots; of others the step."""
    grouped = compile_program(step(optimizer), f"{before}parameter-groups{{match=[w],lr_factor=4}}")
    same(grouped, compile_program(step(optimizer, "%other"), before[:-1]), factor=4)


@pytest.mark.parametrize("optimizer", ["descent", "sgd", "ftrl", "composed", "composed in a function"])
def test_a_rate_of_zero_leaves_the_weight(optimizer: str) -> None:
    grouped = compile_program(step(optimizer), "parameter-groups{match=[w],lr_factor=0}")
    found, plain = train(grouped, state(1), BATCHES[:1])[1], train(step(optimizer), state(1), BATCHES[:1])[1]
    np.testing.assert_array_equal(found["w"], state(1)["w"])
    np.testing.assert_array_equal(found["v"], plain["v"])


@pytest.mark.parametrize("decay", [0.5, 0.0])
@pytest.mark.parametrize(
    "optimizer", [*("descent", "sgd", "sgd behind a decay", "adam", "descent, bounded"), *IN_FUNCTIONS]
)
def test_an_own_decay_is_another_decay_in_the_file(optimizer: str, decay: float) -> None:
    grouped = compile_program(step(optimizer), f"parameter-groups{{match=[w],weight_decay={decay}}}")
    same(grouped, step(optimizer, decay=decay))


@pytest.mark.parametrize(
    ("name", "groups", "noted"),
    [
        ("mlp", "parameter-groups{split_points=[1,3]}", [("fusion", [1, 2, 2, 3])]),
        ("mlp", "parameter-groups{split_points=[0]}", [("fusion", [2, 2, 2, 2])]),
        ("mlp", "parameter-groups{match=[*.bias],fusion=0}", [("fusion", [None, 0, None, 0])]),
        ("mlp", "parameter-groups{rank=matrix,fusion=4}", [("fusion", [4, None, 4, None])]),
        ("mlp", "parameter-groups{rank=vector,fusion=4,centralize=false}", [("fusion", [None, 4, None, 4])]),
        ("mlp", "parameter-groups{centralize=true}", [("centralize", [[1], None, [1], None])]),
        (
            "mlp", "parameter-groups{centralize=true},parameter-groups{match=[hidden.*],centralize=false}",
            [("centralize", [None, None, [1], None])],
        ),
        ("lenet_bn", "parameter-groups{match=[conv*],rank=matrix,centralize=true}", [("centralize", [[1, 2, 3]] * 2)]),
    ],
)  # fmt: skip
def test_what_a_group_notes(name: str, groups: str, noted: list[tuple[str, list[Any]]]) -> None:
    """The number of a bucket, and the axes over which a gradient loses its mean: all but the first."""
    program = compile_program(material(name), groups, reproducer_directory=None)
    weights = [v for v in program.state.values() if v.role == "weight"]
    for note, wanted in noted:
        found = [variable.info.get(note) for variable in weights]
        assert [value for value in found if name == "mlp" or value is not None] == wanted
        assert program.reports[-1].changed == program.reports[-1].matched


SLOTS = "%w, %m_w, %s_w"
THREE = ", ".join(["float32[]<0.5>"] * 3)
DECOUPLED = {
    "ApplyAdamW": f"{SLOTS}, {THREE}, float32[]<DECAY>, {THREE}, %dw, none, false, false",
    "AdamW": f"{SLOTS}, %s_v, %dw, %rate, 0.25, 0.5, 0.75, DECAY, 0.001, false, false",
}


@pytest.mark.parametrize("primitive", DECOUPLED)
def test_optimizers_that_only_ascend_has_decay_by_an_operand(primitive: str) -> None:
    """Structure alone: numpy does not know them. The decay is a tensor or a number, as it was."""
    grouped = compile_program(decoupled(primitive, 0.125), "parameter-groups{match=[w],weight_decay=0.5}")
    found, wanted = (
        [o.value if isinstance(o, Constant) else o.name for o in graphs.node(p.graphs["step"], "up_w").operands[:-1]]
        for p in (grouped, decoupled(primitive, 0.5))
    )
    assert found == wanted


def decoupled(primitive: str, decay: float) -> Program:
    update = f"{primitive}({DECOUPLED[primitive].replace('DECAY', str(decay))}, %t)"
    types = "(float32[2,2], float32[2,2], float32[2,2])"
    body = f"  %up_v = ApplyGradientDescent(%v, %rate, %dv, %t) : float32[2,2]\n  %up_w = {update} : {types}"
    program = graphs.program(HEAD + body + TAIL + "}")
    program.target = "ascend"
    return program
