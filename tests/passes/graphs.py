"""Small training graphs that several tests of passes take."""

from __future__ import annotations

WEIGHTED = """
state %w: float32[2] role=weight
state %rate: float32[] role=hyperparameter
graph @step(%x: float32[2], %n: float32[], %mask: bool[2]) -> (loss) {
  %w0 = Load(%w, umonad) @f
  %y = Mul(%w0, %x) @f
  %rows:7 = Mul(%y, %x) @f
  %wave = Cast(%y, 48) : complex64[2] @f
  %loss = ReduceSum(%rows:7, (), false) @f
  %g = Mul(%x, %x) @b
  %u = UpdateState(umonad, %y)
  %up = ApplyGradientDescent(%w, %rate, %g, %u) : float32[2]
  %end = UpdateState(%u, %up)
  %r = Depend(%loss, %end)
  return %r
}"""
"""The gradient of %w is %x squared, and %n or %mask may weigh a micro-batch."""
