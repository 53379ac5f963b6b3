"""The text form: printable, and parseable back to the same program. One definition a line.

    program @net {                                   // may be left out: the first graph is then the cycle
      target cpu
      schedule @accumulate * 3, @apply; flush @apply; count %accum.count
    }

    state %w: float32[2,3]<sha256:0f84cd960d579dbb> role=weight trainable=true    // bytes: in the resource section
    state %n: int32[]                                                             // no data: zeros

    graph @step(%x: float32[4,3], %go: bool[]) -> (loss) {
      const %u = umonad                              // or written where it is used
      %l = Load(%w, %u) : float32[2,3] scope("Default/Load-op0")
      %y = MatMul(%x, %l, false, true) : float32[4,2]
      %f = Partial(@double, %y)                      // no type: the rules of ir/core/inference.py give it
      %r = call(%f) : float32[4,2]
      return %r

      func @double(%v: float32[4,2]) {
        %d = Mul(%v, float32[]<2.0>) : float32[4,2]
        return %d
      }
    }

    resources {
      sha256:0f84cd960d579dbb "base64…"
    }

Values: ``true``, ``5`` (int64), ``0.5`` (float32; ``0.1d`` a float64 that is no float32), ``int32<5>``, ``"text"``,
``b"bytes"``, ``none``, ``(1, 2)``, ``[1, 2]``, ``float32[2]<0.5, nan>``, ``float32[8]<zeros>``,
``bfloat16[1]<0x803f>``, ``umonad``, ``opaque<hex>``. Names that hold other characters than letters, digits and
``_ . $ / - :`` stand in quotes.
"""

from .parser import parse_graph, parse_program
from .printer import print_graph, print_program, value_names

__all__ = ["parse_graph", "parse_program", "print_graph", "print_program", "value_names"]
