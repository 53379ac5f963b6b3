"""Laws against numpy: a term and its normal form are the same numbers, on random terms and random data.

Every law must be met. A law that is wrong must not get through: two are put in on purpose.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from boost_compile.ir.core.attributes import scalar_tensor
from boost_compile.ir.core.graph import Graph
from boost_compile.ir.core.primitives import CPU, GPU, Family
from boost_compile.ir.core.types import tensor
from boost_compile.ir.proof import reals
from boost_compile.ir.proof.laws import LAWS
from boost_compile.ir.proof.rank_sums import Ranks
from boost_compile.ir.proof.reals import Reals
from boost_compile.ir.symbolic.execution import Execution
from boost_compile.ir.symbolic.terms import VARIES, Terms

from tests.execution import run_graph
from tests.graphs import program

from .evaluation import value_of

SHAPE = (2, 3)
OF_TERMS = ("sums", "products", "quotients", "cast", "zeros", "select", "logic", "extremes", "linear")
"""The laws of normal forms. Those of running graphs and of cycles have tests of their own below."""


class _Writer:
    """Random terms over three tensors, two scalars that are not zero, and a number of the proof."""

    def __init__(self, seed: int):
        self.rng = random.Random(seed)
        self.terms = Terms()
        self.graph = Graph("g")
        self.tensors = [self.leaf(f"x{i}", SHAPE) for i in range(3)]
        self.scalars = [self.leaf(f"s{i}", ()) for i in range(2)]
        self.number = self.terms.make(("symbol", "N"), (), ())

    def leaf(self, name: str, shape: tuple[int, ...]) -> int:
        return self.terms.make(("state", name), (), shape)

    def op(self, name: str, *arguments: int, dtype: str = "float32", more: tuple[object, ...] = ()) -> int:
        """A term of a node of that primitive, as a run would make it."""
        types = [
            tensor(dtype if self.terms.shapes[a] is not None else "int64", *(self.terms.shapes[a] or ()))
            for a in arguments
        ]
        operands = [self.graph.add_input(f"i{len(self.graph.inputs)}", t) for t in types]
        shape = max((self.terms.shapes[a] or () for a in arguments), key=len, default=())
        if name in ("ReduceSum", "ReduceAll"):
            shape = ()
        constants = [self.graph.constant(m) for m in more]
        node = self.graph.create(name, [*operands, *constants], tensor(dtype, *shape))
        extra = tuple(self.terms.constant(m) for m in more)
        head = ("op", name, self.terms.op(node.op), self.terms.type(node.type)[0])
        return self.terms.make(head, (*arguments, *extra), shape, node)

    def constant(self) -> int:
        return self.terms.constant(scalar_tensor("float32", self.rng.choice([0.5, 2.0, -1.0, 3.0, 0.25])))

    def condition(self, depth: int) -> int:
        pick = self.rng.randrange(5)
        if pick == 0:
            smaller = self.op("Sub", self.number, self.terms.constant(scalar_tensor("float32", 0.0)))
            return (
                self.op(
                    self.rng.choice(["Greater", "LessEqual", "Equal"]),
                    self.number,
                    self.op("Sub", self.number, self.number),
                    dtype="bool",
                )
                if self.rng.random() < 0.7
                else self.op("GreaterEqual", smaller, self.number, dtype="bool")
            )
        if pick == 1 or depth <= 0:
            return self.terms.constant(scalar_tensor("bool", self.rng.random() < 0.5))
        if pick == 2:
            return self.op("LogicalNot", self.condition(depth - 1), dtype="bool")
        name = self.rng.choice(["LogicalAnd", "LogicalOr"])
        return self.op(name, self.condition(depth - 1), self.condition(depth - 1), dtype="bool")

    def term(self, depth: int) -> int:
        rng = self.rng
        if depth <= 0:
            return rng.choice([*self.tensors, *self.tensors, *self.scalars, self.number, self.constant()])
        below: Callable[[], int] = lambda: self.term(depth - 1 - rng.randrange(2))  # noqa: E731
        pick = rng.randrange(13)
        if pick < 3:
            return self.op(rng.choice(["Add", "Sub"]), below(), below())
        if pick < 5:
            return self.op("Mul", below(), below())
        if pick == 5:
            return self.op("RealDiv", below(), rng.choice([*self.scalars, self.number]))
        if pick == 6:
            return self.op(rng.choice(["Neg", "Square"]), below())
        if pick == 7:
            return self.op("Cast", below(), more=(43,))
        if pick == 8:
            return self.op(rng.choice(["ZerosLike", "OnesLike"]), below())
        if pick == 9:
            return self.op("Select", self.condition(2), below(), below())
        if pick == 10:
            return self.op(rng.choice(["Maximum", "Minimum"]), below(), below())
        if pick == 11:
            scaled = self.op("Mul", rng.choice(self.tensors), rng.choice([*self.scalars, self.number]))
            return self.op("ReduceSum", scaled, more=((), False, False))
        return self.op("AddN", self.terms.make(("tuple",), (below(), below())))


def counterexamples(seeds: range) -> tuple[list[int], set[str]]:
    """The seeds whose terms are not the numbers of their normal forms, and the laws that were used."""
    wrong: list[int] = []
    used: set[str] = set()
    for seed in seeds:
        w = _Writer(seed)
        root = w.term(5)
        rules = Reals(w.terms, positive=[w.number], nonzero=w.scalars)
        form = rules.form(root)
        used |= rules.laws([root])
        data = np.random.default_rng(seed)
        given = {t: data.standard_normal(w.terms.shapes[t] or ()) for t in w.tensors}
        given |= {t: np.asarray(data.uniform(0.5, 2) * data.choice([-1, 1])) for t in w.scalars}
        given[w.number] = np.asarray(float(data.integers(1, 9)))
        with np.errstate(all="ignore"):
            one, other = value_of(w.terms, root, given), value_of(w.terms, form, given)
        if not np.allclose(np.broadcast_to(one, SHAPE), np.broadcast_to(other, SHAPE), rtol=1e-6, atol=1e-8):
            wrong.append(seed)
    return wrong, used


def test_normal_forms_are_the_same_numbers() -> None:
    wrong, used = counterexamples(range(400))
    assert wrong == []
    assert used >= set(OF_TERMS)


def test_a_wrong_law_of_sums_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """a - b = a + b."""
    monkeypatch.setitem(reals._FAMILIES, "Sub", Family.SUM)
    assert counterexamples(range(60))[0]


def test_a_wrong_law_of_extremes_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Maximum(a, b) = a·b."""
    monkeypatch.setitem(reals._FAMILIES, "Maximum", Family.PRODUCT)
    real = Reals._operation

    def operation(self: Reals, t: int, name: str, head: tuple[object, ...]) -> object:
        if name == "Maximum":
            return self._arithmetic(t, name, self.terms.arguments[t], "float32")
        return real(self, t, name, head)

    monkeypatch.setattr(Reals, "_operation", operation)
    assert counterexamples(range(60))[0]


def test_copies_and_writes_in_place() -> None:
    """The laws `copy` and `in-place`: what a run leaves in a state, as a term, is what numpy leaves in it."""
    source = program(
        "state %s: float32[2]<1.0, 2.0>\nstate %t: float32[2]<3.0, 4.0>\n"
        "graph @step(%x: float32[2]) {\n"
        "  %a = TensorMove(%x) : float32[2]\n"
        "  %b = AssignAdd(%s, %a, umonad) : float32[2]@s\n"
        "  %u = UpdateState(umonad, %b)\n"
        "  %c = AssignSub(%t, %x, %u) : float32[2]@t\n"
        "  %v = UpdateState(%u, %c)\n"
        "  %d = Depend(%a, %v)\n"
        "  return %d\n}"
    )
    graph = source.graphs["step"]
    terms = Terms()
    start = {n: terms.make(("state", n), (), (2,)) for n in source.state}
    x = terms.make(("input", 0), (), (2,))
    found = Execution(terms).run(graph, start, [x])
    memory = {"s": np.float32([1, 2]), "t": np.float32([3, 4])}
    given = {start["s"]: memory["s"].copy(), start["t"]: memory["t"].copy(), x: np.float32([5, 7])}
    run_graph(graph, [np.float32([5, 7])], memory)
    for name, array in memory.items():
        assert np.array_equal(value_of(terms, found.states[name], given), array)
    assert found.result == [x]
    assert {"copy", "in-place"} <= LAWS.keys()


@pytest.mark.parametrize("of", ["s0", "s1"])
def test_what_weighs_nothing_adds_nothing(of: str) -> None:
    """The law `weights`: a choice of a product by its own factor, and none of a product by another one."""
    w = _Writer(0)
    x, (s, other) = w.tensors[0], w.scalars
    zero = w.terms.constant(scalar_tensor("float32", 0.0))
    condition = w.op("NotEqual", s if of == "s0" else other, zero, dtype="bool")
    product = w.op("Mul", x, s)
    root = w.op("Select", condition, product, w.op("ZerosLike", product))
    rules = Reals(w.terms)
    assert (rules.form(root) == rules.form(product)) is (of == "s0")
    for value in (0.0, 2.0):
        given = {x: np.ones(SHAPE), s: np.float64(value), other: np.float64(3)}
        assert np.array_equal(value_of(w.terms, root, given), value_of(w.terms, rules.form(root), given))


def test_induction_and_the_mean() -> None:
    """What is added N times holds N times the mean."""
    rng = np.random.default_rng(0)
    for n in (1, 2, 7):
        added = rng.standard_normal((n, 3))
        held = np.zeros(3)
        for one in added:
            held = held + one
        assert np.allclose(held, n * added.mean(0))
    assert {"induction", "mean"} <= LAWS.keys()


def test_sums_over_ranks() -> None:
    """The laws `ranks` and `layout`: AllReduce of a bucket, against the sum of what three ranks hold, which took
    different numbers of micro-batches."""
    terms = Terms()
    x = [terms.make(("input", i), (), shape, None, VARIES) for i, shape in enumerate([(2, 3), (4,)])]
    n, d = (terms.make(("symbol", name), (), ()) for name in "ND")
    scale = terms.make(("state", "scale"), (), ())
    means = [terms.make(("mean",), (t,), terms.shapes[t], None, 2) for t in x]
    source = program(
        "graph @sum(%a: float32[2,3], %b: float32[4], %n: float32[]) {\n"
        "  %p = Reshape(%a, (6,)) : float32[6]\n"
        "  %t = MakeTuple(%p, %b)\n"
        "  %c = Concat(%t, 0) : float32[10]\n"
        '  %r = AllReduce(%c) {group = "mccl_world_group", op = "sum"} : float32[10]\n'
        "  %q = Slice(%r, (0,), (6,)) : float32[6]\n"
        "  %e = Reshape(%q, (2, 3)) : float32[2,3]\n"
        "  %f = Slice(%r, (6,), (4,)) : float32[4]\n"
        '  %m = AllReduce(%n) {group = "mccl_world_group", op = "sum"} : float32[]\n'
        "  %o = MakeTuple(%e, %f, %m)\n"
        "  return %o\n}"
    )
    ranks = Ranks(terms, x, n, d)
    reals = Reals(terms, positive=[ranks.all_kept, ranks.ranks], ranks=ranks)
    held = []
    for m in means:
        shape = terms.shapes[m]
        held.append(terms.make(("sum", shape, ((Fraction(1), (1, 1, 1)),)), (n, m, scale), shape))
    found = Execution(terms).run(source.graphs["sum"], {}, [*held, n]).result
    rng = np.random.default_rng(0)
    counts = [1, 4, 2]
    taken = [[rng.standard_normal((k, *terms.shapes[t])) for k in counts] for t in x]  # type: ignore[misc]
    given = {scale: np.float64(8), ranks.all_kept: np.float64(sum(counts))}
    given |= {ranks.mean(t): np.concatenate(of).mean(0) for t, of in zip(x, taken, strict=True)}
    for t, of in zip(found, [*taken, [np.ones(k) / 8 for k in counts]], strict=True):
        assert np.allclose(value_of(terms, reals.form(t), given), 8 * sum(one.sum(0) for one in of))
    assert {"ranks", "layout"} == reals.laws(found) - {"linear"}


def test_draws_are_never_one() -> None:
    """The law `draws` says nothing of two random nodes that are alike: they stay two."""
    source = program(
        "graph @step(%x: float32[2]) {\n"
        "  %a = StandardNormal((2,)) {seed = 1, seed2 = 2} : float32[2]\n"
        "  %b = StandardNormal((2,)) {seed = 1, seed2 = 2} : float32[2]\n"
        "  %c = Add(%a, %b) : float32[2]\n"
        "  return %c\n}"
    )
    terms = Terms()
    found = Execution(terms, draws_alike=True).run(source.graphs["step"], {}, [terms.make(("input", 0), (), (2,))])
    one, other = terms.arguments[found.result[0]]
    assert one != other


NORMALISED = """
state %mean: float32[3]<0.5, 0.25, 2.0>
state %variance: float32[3]<1.0, 2.0, 3.0>
graph @step(%x: float32[4,3], %gamma: float32[3], %beta: float32[3]) {{
  %a = BatchNorm(%x, %gamma, %beta, %mean, %variance, true, 1e-05, 0.1, 0, umonad) : {kind}
  %u = UpdateState(umonad, %a)
  %m = TupleGetItem(%a, 3) : float32[3]
  %v = TupleGetItem(%a, 4) : float32[3]
  %b = BatchNorm(%x, {gamma}, %beta, %m, %v, false, {epsilon}, 0.1, 0) {{}} exact : {kind}
  %y = TupleGetItem(%a, 0) : float32[4,3]
  %z = TupleGetItem(%b, 0) : float32[4,3]
  %both = MakeTuple(%y, %z)
  %r = Depend(%both, %u)
  return %r
}}"""


@pytest.mark.parametrize(
    ("gamma", "epsilon", "target", "one"),
    [
        ("%gamma", "1e-05", CPU, True),
        ("%gamma", "1e-05", GPU, False),
        ("%gamma", "0.5", CPU, False),
        ("%beta", "1e-05", CPU, False),
    ],
)
def test_a_normalisation_at_rest_on_what_one_in_training_found(
    gamma: str, epsilon: str, target: str, one: bool
) -> None:
    """The law `at rest`: one term, and the numbers of numpy; with another operand, or on another target, two."""
    kind = "(float32[4,3], float32[3], float32[3], float32[3], float32[3])"
    source = program(NORMALISED.format(kind=kind, gamma=gamma, epsilon=epsilon))
    graph = source.graphs["step"]
    terms = Terms()
    start = {n: terms.make(("state", n), (), (3,)) for n in source.state}
    inputs = [terms.make(("input", i), (), shape) for i, shape in enumerate([(4, 3), (3,), (3,)])]
    y, z = Execution(terms, target=target).run(graph, start, inputs).result
    assert (y == z) is one
    rng = np.random.default_rng(0)
    given = [rng.standard_normal(shape).astype(np.float32) for shape in [(4, 3), (3,), (3,)]]
    memory = {"mean": np.float32([0.5, 0.25, 2]), "variance": np.float32([1, 2, 3])}
    found, again = run_graph(graph, given, memory)
    if target == CPU:
        assert np.array_equal(found, again) is one


@pytest.mark.parametrize(("x", "keep", "one"), [("%x", 0.5, True), ("%other", 0.5, False), ("%x", 0.25, False)])
def test_a_mask_that_was_drawn(x: str, keep: float, one: bool) -> None:
    """The law `mask`."""
    source = program(
        "graph @step(%x: float32[8], %other: float32[8]) {\n"
        "  %d = Dropout(%x, 0.5, 1, 2) : (float32[8], float32[8])\n"
        "  %y = TupleGetItem(%d, 0) : float32[8]\n"
        "  %m = TupleGetItem(%d, 1) : float32[8]\n"
        f"  %z = DropoutGrad({x}, %m) {{keep_prob = {keep}}} : float32[8]\n"
        "  %both = MakeTuple(%y, %z)\n"
        "  return %both\n}"
    )
    terms = Terms()
    inputs = [terms.make(("input", i), (), (8,)) for i in range(2)]
    y, z = Execution(terms).run(source.graphs["step"], {}, inputs).result
    assert (y == z) is one
    found, again = run_graph(source.graphs["step"], [np.ones(8, np.float32), np.full(8, 3, np.float32)], {})
    assert not one or np.array_equal(found, again)


def test_every_law_has_a_statement_and_a_test() -> None:
    tested = {"weights", "copy", "in-place", "mask", "at rest", "induction", "mean", "ranks", "layout", "draws"}
    tested |= {"transposed"}  # tests/ir/symbolic/test_products.py
    assert {*OF_TERMS, *tested} == LAWS.keys()
    assert all(law.holds for law in LAWS.values())
