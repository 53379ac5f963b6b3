"""What the table of primitives says of writes and of chance, asked of MindSpore's CPU kernels: every primitive below
runs in one graph, and what it did to each of its operands is compared with what the table says.

What shares memory with an operand: ``test_views.py``.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
from boost_compile.ir.core.primitives import PRIMITIVES
from boost_compile.ir.text import parse_program

import boost_compile as bc

pytestmark = pytest.mark.mindspore

LETTERS = {
    "x": "%x", "n": "float32[]<0.3>", "j": "int64[]<1>", "i": "int32[2]<0, 1>", "k": "int32[2,1]<0, 1>",
    "l": "int64[2]<0, 1>",
}  # fmt: skip
"""Operands: an input of shape [2, 3], numbers, rows. ``s``: a state of that shape, ``v``: a state of shape [3]."""
LOCK = "use_locking = false"
ADAM = f"{{{LOCK}, use_nesterov = false}}"
FTRL = f"{{lr = 0.1, l1 = 0.1, l2 = 0.1, lr_power = -0.5, {LOCK}}}"
WRITING = {
    "Assign": "s x",
    "AssignAdd": "s x",
    "AssignSub": "s x",
    "SGD": "s x n s n s {dampening = 0.0, weight_decay = 0.0, nesterov = false}",
    "ApplyGradientDescent": "s n x",
    "ApplyMomentum": f"s s n x n {{use_nesterov = false, {LOCK}, gradient_scale = 1.0}}",
    "ApplyAdagrad": "s s n x {update_slots = true}",
    "ApplyAdagradV2": "s s n x {epsilon = 0.001, update_slots = true}",
    "ApplyFtrl": f"s s s x n n n n {{{LOCK}}}",
    "ApplyAdagradDA": f"s s s x n n n j {{{LOCK}}}",
    "ApplyRMSProp": f"s s s n x n n n {{{LOCK}}}",
    "ApplyCenteredRMSProp": f"s s s s x n n n n {{{LOCK}}}",
    "ApplyProximalGradientDescent": "s n n n x",
    "ApplyProximalAdagrad": f"s s n n n x {{{LOCK}}}",
    "ApplyAdadelta": "s s s n n n x",
    "ApplyAddSign": "s s n n n n x",
    "ApplyPowerSign": "s s n n n n x",
    "ApplyAdamWithAmsgrad": f"s s s s n n n x {{beta1 = 0.5, beta2 = 0.5, epsilon = 0.001, {LOCK}}}",
    "ApplyAdamWithAmsgradV2": f"s s s s n n n n n n x {{{LOCK}}}",
    "ApplyAdaMax": "s s s n n n n n x",
    "AdamWeightDecay": f"s s s n n n n n x false {{{LOCK}}}",
    "AdamNoUpdateParam": f"s s n n n n n n x {ADAM}",
    "Adam": f"s s s n n n n n n x {ADAM}",
    "FusedSparseLazyAdam": f"s s s n n n n n n x i {ADAM}",
    "FusedSparseAdam": f"s s s n n n n n n x i {ADAM}",
    "FusedSparseFtrl": f"s s s x i {FTRL}",
    "FusedSparseProximalAdagrad": f"s s n n n x i {{{LOCK}}}",
    "SparseApplyAdagrad": f"s s x i {{lr = 0.1, update_slots = true, {LOCK}}}",
    "SparseApplyAdagradV2": f"s s x i {{lr = 0.1, epsilon = 0.001, update_slots = true, {LOCK}}}",
    "SparseApplyFtrl": f"s s s x i {FTRL}",
    "BatchNorm": "x v v v v true 0.00001 0.1 0",
    **{f"Scatter{what}": f"s i x {{{LOCK}}}" for what in ("Add", "Sub", "Update", "Mul", "Div", "Max", "Min")},
    **{f"ScatterNd{what}": f"s k x {{{LOCK}}}" for what in ("Add", "Sub", "Update", "Mul", "Div", "Max", "Min")},
    "IndexAdd": "s i x {axis = 0, use_lock = true, check_index_bound = true}",
    "InplaceAddExt": "s x 1",
    "InplaceAddsExt": "s 1.0 1",
    "InplaceSubExt": "s x 1",
    "InplaceSubScalar": "s 1.0 1",
    "InplaceMul": "s x",
    "InplaceMuls": "s 3.0",
    "InplaceDiv": "s x",
    "InplaceDivs": "s 3.0",
    "InplaceCopy": "s x false",
    "InplaceFloorDivide": "s x",
    "InplaceFloorDivides": "s 3.0",
    "InplaceRemainderTensorScalar": "s 0.3",
    "InplaceRemainderTensorTensor": "s x",
    "Embedding": "l s none 0.1 2.0 false",
}
"""Those that write in place and have a kernel on the CPU, but for what MindSpore gives no class to make them by
(SparseApplyAdadelta and its kin take no token), and two whose CPU kernel leaves the tensor as it was, in plain
MindSpore too (InplaceMaskedFillTensor, InplaceScatterSrc)."""
RESULTS = {"BatchNorm": "(float32[2,3], float32[3], float32[3], float32[3], float32[3])"}

SEEDS = "{seed = 0, seed2 = 0}"
SAMPLER = "num_true = 2, num_sampled = 50, range_max = 100, seed = 0"
SAMPLED = "(int64[50], float32[1,2], float32[50])"
DRAWING = {
    "Dropout": ("%many, 0.5, 0, 0", "(float32[64,8,2,3], float32[64,8,2,3])"),
    "Dropout2D": ("%many {keep_prob = 0.5}", "(float32[64,8,2,3], bool[64,8,2,3])"),
    "Dropout3D": ("%more {keep_prob = 0.5}", "(float32[4,8,2,3,2], bool[4,8,2,3,2])"),
    "StandardNormal": (f"(2, 3) {SEEDS}", "float32[2,3]"),
    "StandardLaplace": (f"(2, 3) {SEEDS}", "float32[2,3]"),
    "UniformReal": (f"(2, 3) {SEEDS}", "float32[2,3]"),
    "UniformInt": (f"(2, 3), int32[]<0>, int32[]<1000000> {SEEDS}", "int32[2,3]"),
    "Bernoulli": ("%many, float32[]<0.5> {seed = -1, offset = 0}", "float32[64,8,2,3]"),
    "RandomShuffle": (f"%many {SEEDS}", "float32[64,8,2,3]"),
    "RandomGamma": (f"int32[2]<2, 3>, %x {SEEDS}", "float32[2,3,2,3]"),
    "LogNormalReverse": ("%x {mean = 1.0, std = 2.0}", "float32[2,3]"),
    "MultinomialWithReplacement": (
        "%x, int64[]<1>, int64[]<0> {numsamples = 50, replacement = true}", "int64[2,50]",
    ),
    "ParameterizedTruncatedNormal": (
        "int32[2]<2, 3>, float32[2]<0.0, 0.0>, float32[2]<1.0, 1.0>, float32[2]<-2.0, -2.0>, float32[2]<2.0, 2.0> "
        + SEEDS,
        "float32[2,3]",
    ),
    "LogUniformCandidateSampler": (f"int64[1,2]<1, 2> {{{SAMPLER}, unique = true}}", SAMPLED),
    "UniformCandidateSampler": (
        f"int64[1,2]<1, 2> {{{SAMPLER}, unique = false, remove_accidental_hits = false}}", SAMPLED,
    ),
}  # fmt: skip
"""Operands and attributes, and the type of the result. Each draws so much that equal draws are out of the question: a
mask over six values is the same once in 64 times, an order of four rows once in 24."""
SURE = {
    "Mul": ("%x, %x", "float32[2,3]"),
    "DropoutGrad": ("%x, %x {keep_prob = 0.5}", "float32[2,3]"),
    "ReduceSum": ("%x, (0,), false, false", "float32[3]"),
}
"""Some that do not draw, so that the test can fail both ways."""


def writing(names: Iterable[str]) -> bc.Program:
    """A graph in which each primitive writes states of its own, one after the other."""
    states, lines, token = ["state %last: float32[2,3] role=weight"], [], "umonad"
    for name in names:
        form, brace, attributes = WRITING[name].partition("{")
        operands = []
        for i, letter in enumerate(form.split()):
            operands.append(f"%{name}.{i}" if letter in "sv" else LETTERS.get(letter, letter))
            if letter in "sv":
                values = "0.5, 0.75, 0.25, 0.4, 0.9, 0.6" if letter == "s" else "0.5, 0.75, 0.25"
                states.append(f"state %{name}.{i}: float32{'[2,3]' if letter == 's' else '[3]'}<{values}> role=weight")
        type_ = RESULTS.get(name, "float32[2,3]")
        lines.append(f"%{name}.done = {name}({', '.join(operands)}, {token}) {brace}{attributes} : {type_}")
        lines.append(f"%{name}.token = UpdateState({token}, %{name}.done)")
        token = f"%{name}.token"
    return parse_program("\n".join([
        *states, "graph @step(%x: float32[2,3]) {", *lines,
        f"%w = Assign(%last, %x, {token})", f"%u = UpdateState({token}, %w)", "%r = Depend(%x, %u)", "return %r", "}",
    ]))  # fmt: skip


def written(names: list[str]) -> dict[str, tuple[int, ...]]:
    """By primitive: the operands that are not what they were."""
    session = bc.Session(writing(names), device="CPU")
    before = {name: np.array(value) for name, value in session.state().items()}
    session.step(np.array([[1.5, -2, 3], [-4, 5, 6]], np.float32))
    after = session.state()
    changed: dict[str, list[int]] = {name: [] for name in names}
    for name, old in before.items():
        primitive, _, at = name.partition(".")
        if at and not np.array_equal(old, after[name]):
            changed[primitive].append(int(at))
    return {name: tuple(sorted(at)) for name, at in changed.items()}


def test_kernels_write_the_operands_that_the_table_names() -> None:
    assert written(list(WRITING)) == {name: PRIMITIVES[name].writes for name in WRITING}


def test_what_draws_gives_something_else_the_next_time() -> None:
    """Each in one graph that runs twice with the same inputs."""
    lines, results = [], []
    for name, (form, type_) in {**DRAWING, **SURE}.items():
        operands, brace, attributes = form.partition("{")
        lines.append(f"%{name} = {name}({operands}) {brace}{attributes} : {type_}")
        results.append(f"%{name}.first" if type_.startswith("(") else f"%{name}")
        if type_.startswith("("):
            lines.append(f"%{name}.first = TupleGetItem(%{name}, 0)")
    inputs = "%x: float32[2,3], %many: float32[64,8,2,3], %more: float32[4,8,2,3,2]"
    program = parse_program("\n".join([
        "state %last: float32[2,3] role=weight", f"graph @step({inputs}) {{", *lines,
        f"%t = MakeTuple({', '.join(results)})", "%w = Assign(%last, %x, umonad)", "%u = UpdateState(umonad, %w)",
        "%r = Depend(%t, %u)", "return %r", "}",
    ]))  # fmt: skip
    session = bc.Session(program, device="CPU")
    values = np.random.default_rng(0)
    arrays = [values.random(shape, np.float32) + 1 for shape in ((2, 3), (64, 8, 2, 3), (4, 8, 2, 3, 2))]
    twice = [[np.array(v) for v in session.step(*arrays).outputs.values()] for _ in range(2)]
    differs = {name: not np.array_equal(a, b) for name, a, b in zip({**DRAWING, **SURE}, *twice, strict=True)}
    assert differs == {name: name in PRIMITIVES and PRIMITIVES[name].random for name in differs}
    assert {name for name, drawn in differs.items() if drawn} == DRAWING.keys()
