"""Programs with one fault each, made at random and the same for the same seed: an operand swapped, a constant nudged,
an effect dropped or reordered, an attribute changed."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from boost_compile.ir.core.attributes import TensorValue
from boost_compile.ir.core.data import from_numpy, to_numpy
from boost_compile.ir.core.graph import Constant, Graph, Node, Value
from boost_compile.ir.core.predicates import is_effect
from boost_compile.ir.core.program import Program
from boost_compile.ir.core.types import TensorType, is_monad
from boost_compile.ir.verify.verifier import verify

from tests.execution import ORDERS, Arrays, train


@dataclass(frozen=True)
class Mutation:
    kind: str
    where: str


def mutated(program: Program, rng: random.Random) -> tuple[Program, Mutation] | None:
    """A copy with one fault; None where the graph that was drawn has no place for the kind that was drawn."""
    copy = program.copy()
    graph = rng.choice([body for g in copy.graphs.values() for body in g.all_graphs() if len(body)])
    kind = rng.choice(list(KINDS))
    nodes = list(graph)
    node = next((n for n in rng.sample(nodes, len(nodes)) if KINDS[kind](graph, n, rng)), None)
    if node is None:
        return None
    try:
        for main in copy.graphs.values():
            main.sort()
        verify(copy)
    except Exception:
        return None
    return copy, Mutation(kind, f"{graph.name}/{node.name} ({node.op.name})")


def _swap(graph: Graph, node: Node, rng: random.Random) -> bool:
    """Another value of the same type in the place of an operand."""
    at = rng.randrange(node.num_operands) if node.num_operands else 0
    if not node.num_operands or is_monad(node.operand(at).type):
        return False
    old = node.operand(at)
    before: list[Value] = [*graph.inputs, *graph.states.values()]
    for other in graph:
        if other is node:
            break
        before.append(other)
    others = [v for v in before if v is not old and _plain(v) == _plain(old) and type(v) is type(old)]
    if not others:
        return False
    node.set_operand(at, rng.choice(others))
    return True


def _plain(value: Value) -> object:
    type_ = value.type
    return (type_.dtype, type_.shape) if isinstance(type_, TensorType) else None if is_monad(type_) else type_


def _nudge(graph: Graph, node: Node, rng: random.Random) -> bool:
    """A constant that is off by a quarter."""
    places = [i for i, v in enumerate(node.operands) if isinstance(v, Constant) and _floats(v)]
    if not places:
        return False
    at = rng.choice(places)
    constant = node.operand(at)
    assert isinstance(constant, Constant)
    value = constant.value
    if isinstance(value, float):
        node.set_operand(at, Constant("nudged", value * 1.25 + 0.25))
        return True
    array = np.array(to_numpy(value.type, value.data)) * 1.25 + 0.25
    type_, data = from_numpy(array.astype(value.type.dtype.value))
    node.set_operand(at, Constant("nudged", TensorValue(type_, data)))
    return True


def _floats(constant: Constant) -> bool:
    value = constant.value
    return isinstance(value, float) or (
        isinstance(value, TensorValue) and value.type.dtype.value in ("float32", "float64")
    )


def _drop(graph: Graph, node: Node, rng: random.Random) -> bool:
    """An effect that does not happen."""
    if not is_effect(node) or not any(is_monad(v.type) for v in node.operands):
        return False
    for user, i in node.use_sites():
        if user.op.name == "UpdateState" or (user.op.name == "Depend" and i == 1):
            user.set_operand(i, node.operand(node.num_operands - 1))
        elif user.op.name == "MakeTuple":
            user.set_operand(i, graph.constant(True))
        else:
            return False
    if not node.uses:
        graph.erase(node)
    return True


def _unchain(graph: Graph, node: Node, rng: random.Random) -> bool:
    """An effect that waits for another token than it did."""
    at = node.num_operands - 1
    if node.op.name == "UpdateState" or at < 0 or not is_monad(node.operand(at).type):
        return False
    tokens = [n for n in graph if n.op.name == "UpdateState" and n is not node.operand(at)]
    firsts = [v for n in graph for v in n.operands if isinstance(v, Constant) and is_monad(v.type)]
    chosen = rng.choice([*tokens, *firsts[:1]]) if tokens or firsts else None
    if chosen is None or chosen is node.operand(at):
        return False
    node.set_operand(at, chosen)
    return True


def _attribute(graph: Graph, node: Node, rng: random.Random) -> bool:
    """A flag or number among the attributes that is another one."""
    names = [k for k, v in node.attributes.items() if isinstance(v, (bool, float)) and not k.startswith("side_effect")]
    if not names:
        return False
    name = rng.choice(names)
    old = node.attributes[name]
    node.set_attribute(name, (not old) if isinstance(old, bool) else old * 2 + 1)
    return True


def _flip(graph: Graph, node: Node, rng: random.Random) -> bool:
    """The operands of an operation, the other way round."""
    if node.num_operands < 2 or _plain(node.operand(0)) is None or _plain(node.operand(0)) != _plain(node.operand(1)):
        return False
    if is_effect(node):
        return False
    node.set_operands([node.operand(1), node.operand(0), *node.operands[2:]])
    return True


KINDS: dict[str, Callable[[Graph, Node, random.Random], bool]] = {
    "operand swapped": _swap,
    "constant nudged": _nudge,
    "effect dropped": _drop,
    "effect reordered": _unchain,
    "attribute changed": _attribute,
    "operands flipped": _flip,
}


def batches(graph: Graph, count: int, seed: int) -> list[list[np.ndarray]]:
    rng = np.random.default_rng(seed)

    def one(value: Value) -> np.ndarray:
        type_ = value.type
        assert isinstance(type_, TensorType)
        if type_.dtype.is_float:
            return rng.standard_normal(type_.shape).astype(type_.dtype.value)
        return rng.integers(0, 2, type_.shape).astype(type_.dtype.value)

    return [[one(v) for v in graph.inputs] for _ in range(count)]


def starting(program: Program, seed: int) -> Arrays:
    """Weights and slots that are not zero, so that nothing hides."""
    rng = np.random.default_rng(seed)
    return {
        n: (np.abs(rng.standard_normal(v.shape)) + 0.1).astype(v.dtype.value)
        for n, v in program.state.items()
        if v.role in ("weight", "slot", "statistic") and v.dtype.is_float
    }


def told_apart(clean: Program, faulty: Program, given: Sequence[list[np.ndarray]], state: Arrays) -> bool:
    """Whether some order of execution gives other states or results."""
    with np.errstate(all="ignore"):
        wanted = train(clean, state, given)
        for order in ORDERS[:3]:
            try:
                found = train(faulty, state, given, order)
            except Exception:
                return True
            if _differ(wanted[1], found[1]) or not _alike(_results(clean, wanted[0]), _results(faulty, found[0])):
                return True
    return False


def _results(program: Program, returned: list[list[object]]) -> list[object]:
    """What graphs return; one without outputs returns a number that nobody takes."""
    return [value for name, value in returned if program.graphs[str(name)].outputs]


def _differ(a: Arrays, b: Arrays) -> bool:
    return any(not _close(a[name], b[name]) for name in a)


def _alike(a: object, b: object) -> bool:
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(_alike, a, b))
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return _close(np.asarray(a), np.asarray(b))
    return a == b


def _close(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and bool(np.allclose(a, b, rtol=2e-3, atol=1e-5, equal_nan=True))
