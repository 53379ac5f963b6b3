"""Gradients are unscaled in front of all else, whatever order an optimizer has and whatever number it divides by."""

from __future__ import annotations

import pytest
from boost_compile.ir.core.errors import OptionError, PassError
from boost_compile.passes.clip_gradients import ClipGradients
from boost_compile.passes.step.dynamic_loss_scale import scales_its_loss
from boost_compile.passes.step.unscaling import unscaled_paths

from tests.graphs import program

STEP = """
state %w: float32[2]
state %m: float32[2]
graph @step(%x: float32[2]) -> (loss) {
  %w0 = Load(%w, umonad) scope("Default/net-Net/op") @f
  %y = Mul(%w0, %x) scope("Default/net-Net/op") @f
  %loss = ReduceSum(%y, (), false) scope("Default/net-Net/op") @f3
  %g = Mul(%x, float32[2]<SCALE, SCALE>) scope("Gradients/Default/net-Net/op") @b3
  %d = Mul(%w0, float32[]<0.5>) scope("Default/opt-Own/op")
  %pair = MakeTuple(%d, %g) scope("Default/opt-Own/op")
  %sum = AddN(%pair) : float32[2] scope("Default/opt-Own/op")
  %s = RealDiv(%sum, float32[]<SCALE>) scope("Default/opt-Own/op")
  %u = UpdateState(umonad, %y)
  %up = ApplyMomentum(%w, %m, 0.1, %s, 0.9, %u) : float32[2] scope("Default/opt-Own/op")
  %end = UpdateState(%u, %up)
  %r = Depend(%loss, %end)
  return %r
}"""


WAITED_FOR = ("%u = UpdateState(umonad, %y)", "%wait = MakeTuple(%y, %pair)\n  %u = UpdateState(umonad, %wait)")


@pytest.mark.parametrize("scale", [2.0, 8.0, 12.0, 16.0, 1000.0])
@pytest.mark.parametrize("waited_for", [False, True])
def test_the_decay_comes_last(scale: float, waited_for: bool) -> None:
    """An effect that waits for the decayed gradient takes nothing of it."""
    text = STEP.replace(*WAITED_FOR) if waited_for else STEP
    graph = program(text.replace("SCALE", str(scale))).graphs["step"]
    (path,) = unscaled_paths(graph, "told")
    assert ([p.stage for p in path.points], path.assumed) == (["", "unscale", "weight-decay"], "")
    (found,) = [node for node in graph if node.op.name == "ApplyMomentum"]
    assert found.operand(3).op.name == "AddN"  # type: ignore[attr-defined]
    terms = found.operand(3).operand(0).operands  # type: ignore[attr-defined]
    assert [t.op.name for t in terms] == ["RealDiv", "RealDiv"]


def test_none_leaves_the_factor_to_the_optimizer() -> None:
    graph = program(STEP.replace("SCALE", "8.0")).graphs["step"]
    (path,) = unscaled_paths(graph, "none")
    assert [p.stage for p in path.points] == ["", "weight-decay"]


@pytest.mark.parametrize("said", ["0", "-2", "some"])
def test_what_is_no_number_is_refused(said: str) -> None:
    with pytest.raises(OptionError, match="'unscale' must be a number above 0, none or told"):
        ClipGradients(unscale=said)


@pytest.mark.parametrize(("seed", "scaled"), [(1000.0, True), (2.0, False), (1.0, False)])
def test_a_file_that_scales_its_loss_by_hand_needs_no_second_scale(seed: float, scaled: bool) -> None:
    text = STEP.replace("<SCALE, SCALE>", f"<{seed}, {seed}>").replace("SCALE", "1000.0")
    assert scales_its_loss(program(text)) is scaled


@pytest.mark.parametrize(("said", "stages"), [("told", None), ("none", [""]), ("12", ["", "unscale"])])
def test_an_operator_that_may_be_the_optimizers_is_a_question(said: str, stages: list[str] | None) -> None:
    """Its scope is that of the network, which used it first; the optimizer is made by hand."""
    by_hand = """
  %s = RealDiv(%g, float32[]<12.0>) scope("Default/net-Net/op")
  %m0 = Load(%m, umonad) scope("Default/opt-Own/op")
  %new = Add(%m0, %s) scope("Default/opt-Own/op")
  %u = UpdateState(umonad, %y)
  %up = AssignSub(%w, %new, %u) : float32[2] scope("Default/opt-Own/op")
"""
    text = STEP[: STEP.index("  %d = ")] + by_hand + STEP[STEP.index("  %end") :]
    text = text.replace("%y = Mul(%w0, %x)", "%y = RealDiv(%w0, %x)").replace("SCALE", "1.0")
    graph = program(text).graphs["step"]
    if stages is None:
        with pytest.raises(PassError, match=r"RealDiv .*may unscale.*: say unscale=NUMBER, .*'w'"):
            unscaled_paths(graph, said)
    else:
        (path,) = unscaled_paths(graph, said)
        assert [point.stage for point in path.points] == stages
