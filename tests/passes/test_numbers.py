"""No number decides what a value means: batch sizes, decays, momenta, loss scales and learning rates run through
powers of two and their neighbours, behind each pass that puts something on the path of a gradient. Numpy judges."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from boost_compile.ir.core.program import Program
from boost_compile.ir.rewrite.roles import assign_roles
from boost_compile.passes import compile_program

from tests import graphs
from tests.execution import train

Array = np.ndarray
NUMBERS = (3, 8, 12, 15, 16, 17, 20, 24, 32, 33, 48, 64, 1000, 1024)
STEP = """
state %w: float32[2,2] role=weight
state %m: float32[2,2] role=slot
graph @step(%x: float32[2,2]) -> (loss) {
  %w0 = Load(%w, umonad) !net @f1
  %e = Sub(%w0, %x) !net @f2
  %q = Square(%e) : float32[2,2] !net @f3
  %loss = ReduceSum(%q, (), false) : float32[] !net @f4
  %c = Mul(%e, float32[]<2.0>) !grad @b3
  %g = Mul(%c, float32[2,2]<SEED, SEED, SEED, SEED>) !grad @b3
  %u = UpdateState(umonad, %e)
  %m0 = Load(%m, umonad) !opt
BODY
  %end = UpdateState(%u9, %up)
  %r = Depend(%loss, %end)
  return %r
}"""
SCOPES = {
    "!net": "Default/net-Net",
    "!grad": "Gradients/Default/net-Net",
    "!opt": "Default/opt-Own",
    "!cell": "Default",
}
KEEPS = """
  %old = Mul(%m0, float32[]<BETA>) !opt
  %new = Add(%old, %h) !opt
  %kept = Assign(%m, %new, %u) : float32[2,2] !opt
  %u9 = UpdateState(%u, %kept)
  %move = Mul(%new, float32[]<RATE>) !opt
  %up = AssignSub(%w, %move, %u9) : float32[2,2] !opt"""
PRIMITIVE = """
  %u9 = UpdateState(%u, %m0)
  %up = ApplyMomentum(%w, %m, RATE, %h, BETA, %u9) : float32[2,2] !opt"""


@dataclass(frozen=True)
class Cell:
    """``body`` and ``seed`` as text with K for the number. ``handed``: what the optimizer is handed, of the gradient of
    the loss; it keeps ``beta`` m + ``taken`` (h + ``decay`` w), and moves by ``rate`` times that."""

    body: str
    seed: Callable[[float], float] = lambda k: 1.0
    handed: Callable[[float], float] = lambda k: 1.0
    beta: Callable[[float], float] = lambda k: 0.9
    taken: Callable[[float], float] = lambda k: 1.0
    decay: Callable[[float], float] = lambda k: 0.0
    rate: Callable[[float], float] = lambda k: 0.125

    def program(self, k: float) -> Program:
        text = STEP.replace("BODY", self.body).replace("SEED", repr(self.seed(k)))
        for word, number in (("BETA", self.beta(k)), ("RATE", self.rate(k)), ("DECAY", self.decay(k) * self.seed(k))):
            text = text.replace(word, repr(float(np.float32(number))))
        text = text.replace("1/K", repr(float(np.float32(1 / k)))).replace("<K>", f"<{float(k)}>")
        for mark, scope in SCOPES.items():
            text = text.replace(mark, f'scope("{scope}/op")')
        return assign_roles(graphs.program(text))

    def step(self, k: float, w: Array, m: Array, h: Array, decay: float | None = None) -> tuple[Array, Array]:
        m = self.beta(k) * m + self.taken(k) * (h + (self.decay(k) if decay is None else decay) * w)
        return w - self.rate(k) * m, m


def over(k: float) -> float:
    return 1 / k


def itself(k: float) -> float:
    return k


CELLS = {
    "divided by the batch": Cell("%h = RealDiv(%g, float32[]<K>) !cell" + KEEPS, handed=over),
    "times the reciprocal": Cell("%h = Mul(%g, float32[]<1/K>) !cell" + KEEPS, handed=over),
    "an average": Cell("%h = Mul(%g, float32[]<1/K>) !opt" + KEEPS, beta=lambda k: 1 - 1 / k, taken=over),
    "divided for the slot": Cell("%h = RealDiv(%g, float32[]<K>) !opt" + KEEPS, taken=over),
    "a rate": Cell("%h = Neg(%g) !opt\n" + KEEPS, taken=lambda k: -1.0, rate=lambda k: -1 / k),
    "unscaled by hand": Cell("%h = RealDiv(%g, float32[]<K>) !opt" + KEEPS, seed=itself),
    "unscaled by the training cell": Cell("%h = Mul(%g, float32[]<1/K>) !cell" + KEEPS, seed=itself),
    "unscaled and averaged": Cell(
        "%i = RealDiv(%g, float32[]<K>) !opt\n%h = Mul(%i, float32[]<0.0625>) !opt" + KEEPS,
        seed=itself, beta=lambda k: 0.9375, taken=lambda k: 0.0625,
    ),
    "unscaled behind the decay": Cell(
        "%d = Mul(%w0, float32[]<DECAY>) !opt\n%p = MakeTuple(%d, %g) !opt\n%s = AddN(%p) : float32[2,2] !opt\n"
        "%h = Mul(%s, float32[]<1/K>) !opt" + PRIMITIVE,
        seed=itself, decay=lambda k: 0.5,
    ),
    "decayed": Cell(
        "%d = Mul(%w0, float32[]<DECAY>) !opt\n%h = Add(%g, %d) !opt" + PRIMITIVE, decay=over,
    ),
    "divided and decayed": Cell(
        "%i = RealDiv(%g, float32[]<K>) !cell\n%d = Mul(%w0, float32[]<DECAY>) !opt\n%h = Add(%i, %d) !opt" + PRIMITIVE,
        handed=over, decay=over,
    ),
}  # fmt: skip


def clipped(h: Array) -> Array:
    return h * min(1.0, 0.25 / np.sqrt((h**2).sum()))


def bounded(h: Array) -> Array:
    return np.clip(h, -0.0625, 0.0625)


def unchanged(h: Array) -> Array:
    return h


PASSES: dict[str, Callable[[Array], Array]] = {
    "clip-gradients{limit=0.25}": clipped,
    "clip-gradients{by=value,limit=0.0625}": bounded,
    "overflow-check": unchanged,
    "loss-scale{mode=static,init=16}": unchanged,
    "loss-scale{mode=static,init=24},clip-gradients{limit=0.25}": clipped,
}
RNG = np.random.default_rng(4)
WEIGHT, SLOT = (RNG.standard_normal((2, 2)).astype("float32") for _ in range(2))
BATCHES = [RNG.standard_normal((2, 2)).astype("float32") for _ in range(2)]


def gradient(w: Array, x: Array) -> Array:
    return 2 * (w - x)


def judge(cell: Cell, pipeline: str, k: float, w: Array, m: Array) -> None:
    program = compile_program(cell.program(k), pipeline, reproducer_directory=None)
    _, state = train(program, {"w": WEIGHT, "m": SLOT}, [[x] for x in BATCHES])
    np.testing.assert_allclose(state["w"], w, rtol=1e-5, atol=2e-6, err_msg=f"{pipeline} at {k}")
    np.testing.assert_allclose(state["m"], m, rtol=1e-5, atol=2e-6, err_msg=f"{pipeline} at {k}")


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("pipeline", PASSES)
def test_nothing_jumps(cell: str, pipeline: str) -> None:
    one = CELLS[cell]
    for k in map(float, NUMBERS):
        w, m = WEIGHT.astype(np.float64), SLOT.astype(np.float64)
        for x in BATCHES:
            w, m = one.step(k, w, m, PASSES[pipeline](one.handed(k) * gradient(w, x)))
        judge(one, pipeline, k, w, m)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("last", ["clip-gradients{limit=0.25}", "clip-gradients{by=value,limit=0.0625}"])
def test_accumulation_changes_nothing_of_that(cell: str, last: str) -> None:
    """Passes may come in any order: where a gradient comes from accumulators, no network tells."""
    one = CELLS[cell]
    accumulation = "gradient-accumulation{steps=2,reduction=mean}"
    for k in map(float, NUMBERS):
        w, m = WEIGHT.astype(np.float64), SLOT.astype(np.float64)
        mean = sum(gradient(w, x) for x in BATCHES) / 2
        w, m = one.step(k, w, m, PASSES[last](one.handed(k) * mean))
        for pipeline in (f"{accumulation},{last}", f"{last},{accumulation}"):
            judge(one, pipeline, k, w, m)


@pytest.mark.parametrize("cell", [name for name, cell in CELLS.items() if PRIMITIVE in cell.body])
@pytest.mark.parametrize("decay", [0.0, 0.25])
def test_another_decay(cell: str, decay: float) -> None:
    one = CELLS[cell]
    for k in map(float, NUMBERS):
        w, m = WEIGHT.astype(np.float64), SLOT.astype(np.float64)
        for x in BATCHES:
            w, m = one.step(k, w, m, one.handed(k) * gradient(w, x), decay)
        judge(one, f"parameter-groups{{weight_decay={decay}}}", k, w, m)


@pytest.mark.parametrize("cell", CELLS)
def test_centralization_stands_on_what_the_update_takes(cell: str) -> None:
    one = CELLS[cell]
    pipeline = "lower-gradient-centralization"
    for k in map(float, NUMBERS):
        program = one.program(k)
        program.state["w"].info["centralize"] = [1]
        program = compile_program(program, pipeline, reproducer_directory=None)
        _, state = train(program, {"w": WEIGHT, "m": SLOT}, [[x] for x in BATCHES])
        w, m = WEIGHT.astype(np.float64), SLOT.astype(np.float64)
        for x in BATCHES:
            taken = one.handed(k) * gradient(w, x) + one.decay(k) * w
            w, m = one.step(k, w, m, taken - taken.mean(1, keepdims=True), 0.0)
        np.testing.assert_allclose(state["w"], w, rtol=1e-5, atol=2e-6, err_msg=f"{cell} at {k}")


@pytest.mark.parametrize("cell", ["unscaled by hand", "unscaled behind the decay", "divided by the batch"])
def test_the_norm_that_is_returned_is_that_of_the_loss_as_the_optimizer_is_handed_it(cell: str) -> None:
    one = CELLS[cell]
    for k in map(float, NUMBERS):
        pipeline = "clip-gradients{limit=1e9,report_norm=true}"
        program = compile_program(one.program(k), pipeline, reproducer_directory=None)
        ((_, (_, norm)),), _ = train(program, {"w": WEIGHT, "m": SLOT}, [[BATCHES[0]]])
        wanted = np.linalg.norm(one.handed(k) * gradient(WEIGHT.astype(np.float64), BATCHES[0]))
        np.testing.assert_allclose(norm, wanted, rtol=1e-5, err_msg=str(k))
