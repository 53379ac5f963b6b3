"""Random programs: a few always, as many as one likes with `make test-random CASES=500`."""

from __future__ import annotations

from collections import Counter

import pytest
from boost_compile.ir.text import parse_program

from .composition import regroups_sums
from .outcome import PASSED
from .plan import Plan
from .running import draw, run
from .shrinking import shrink


def test_a_seed_is_a_plan() -> None:
    for seed in range(8):
        plan = draw(seed)
        assert plan == draw(seed)
        assert plan == Plan.from_json(plan.to_json())
    assert len({draw(seed).to_json() for seed in range(8)}) == 8


def test_plans_are_various() -> None:
    drawn = [draw(seed) for seed in range(0, 400, 4)]
    layers = Counter(layer.op for plan in drawn for layer in plan.network.layers)
    assert {"conv", "recurrent", "attention", "embedding", "batch_norm2d", "loop", "branch", "dropout"} <= layers.keys()
    assert {how for plan in drawn for call in plan.network.calls for how in [call.how]} == {"call", "tied", "decode"}
    assert len({plan.optimizer.name for plan in drawn}) == 14
    assert any(layer.half for plan in drawn for layer in plan.network.layers)
    assert sum(bool(plan.pipeline) for plan in drawn) > 60


def test_a_plan_that_fails_becomes_small() -> None:
    """What fails here is any network with a dense layer and a norm that clips: nothing else is left."""

    def fails(plan: Plan) -> bool:
        dense = any(layer.op == "dense" for layer in plan.network.layers)
        return dense and any(piece.startswith("clip-gradients") for piece in plan.pipeline)

    seed = next(seed for seed in range(100) if fails(draw(seed)) and len(draw(seed).network.layers) > 5)
    found = shrink(seed, fails)
    assert found is not None
    assert fails(found)
    assert [layer.op for layer in found.network.layers] == ["dense"]
    assert len(found.pipeline) == 1


PARTS = """
state %w: float32[2] role=weight
state %rate: float32[] role=hyperparameter
graph @step(%x: float32[2]) -> (loss) {
  %l = Load(%w, umonad) : float32[2] primal {unique_id = "1"}
  %y = Mul(%l, %x) : float32[2] primal {unique_id = "2"}
  %z = Mul(%y, %l) : float32[2] primal {unique_id = "3"}
  %loss = ReduceSum(%z, (), false, false) : float32[] primal {unique_id = "4"}
  %dz = OnesLike(%z) : float32[2] primal {forward_unique_id = "4"}
  %dy = Mul(%dz, %l) : float32[2] primal {forward_unique_id = "3"}
  %part1 = Mul(%dz, %y) : float32[2] primal {forward_unique_id = "3"}
  %part2 = Mul(%dy, %x) : float32[2] primal {forward_unique_id = "2"}
  %decay = Mul(%l, float32[]<0.01>)
  %parts = MakeTuple(%decay, %part1, %part2)
  %g = AddN(%parts)
  %u1 = UpdateState(umonad, %decay)
  %one = ApplyGradientDescent(%w, %rate, %g, %u1) : float32[2]
  %u2 = UpdateState(%u1, %one)
  %r = Depend(%loss, %u2)
  return %r
}"""


def test_an_exchange_may_add_the_parts_of_a_gradient_in_another_order() -> None:
    """Seed 3097: a cell of recurrence, unrolled, with weight decay."""
    parts, whole = parse_program(PARTS), parse_program(PARTS.replace("%part1, %part2)", "%part2)"))
    assert regroups_sums(parts, ["dead-code-elimination", "data-parallel"])
    assert not regroups_sums(parts, ["dead-code-elimination"])
    assert not regroups_sums(whole, ["data-parallel"])


FEW = 6


@pytest.mark.parametrize("first", [0, pytest.param(1000, marks=pytest.mark.slow)])
def test_random_programs_train_as_mindspore_does(first: int) -> None:
    count = 500 if first else FEW
    found = list(run(range(first, first + count), verify_every=10 if first else 0))
    failed = [
        f"--seed {seed}: {outcome.stage}: {outcome.message[:2000]}" for seed, _, outcome in found if outcome.failed
    ]
    assert not failed, "python -m tests.random_programs " + "\n".join(failed)
    passed = sum(outcome.status == PASSED for _, _, outcome in found)
    assert passed >= 0.8 * count, Counter(outcome.status for _, _, outcome in found)
