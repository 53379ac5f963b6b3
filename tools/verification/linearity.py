"""Loss scaling leaves training as it is, whatever the scale."""

from __future__ import annotations

import numpy as np

from .context import Context, NotApplicable, Property, moved
from .report import Result
from .tolerance import compare


class LossScaleLinearity(Property):
    """The same cycle with the loss scales 1, the program's own, and eight times that: each updates as the original
    does. Powers of two change no bit; other scales round every product of the backward part once more, which the noise
    floor of the gradients covers. Scales at which half precision overflows are left out."""

    name = "loss-scale linearity"
    promise = "the update is the same at any loss scale"

    def check(self, c: Context) -> Result:
        c.needs_update()
        c.subject.restart()
        own = {
            n: v
            for n, v in c.subject.state().items()
            if c.program.state[n].role == "loss-scale" and v.dtype.kind == "f" and np.all(v > 0)
        }
        if not own:
            raise NotApplicable("the program has no loss scale")
        c.takes_long()
        batches = c.micro_batches(0)
        wanted = c.first
        deviations, scales = [], []
        # Half precision has gradients that only a scale keeps from zero: one is no fair scale there.
        half = c.reference.probe.unit > 2.0**-12
        for factor in (1.0, 0.5) if half else (0.0, 1.0, 8.0):
            c.subject.restart()
            scaled = {n: (v * v.dtype.type(factor) if factor else np.ones_like(v)) for n, v in own.items()}
            c.subject.load(scaled)
            ran = c.subject.cycle(batches)
            if not ran.last.updated:
                continue
            deviations.append(compare(ran.state, wanted.expected, c.judged()))
            scales.append(f"{float(next(iter(scaled.values())).flat[0]):g}")
        if not deviations:
            raise NotApplicable("every scale overflows with this data")
        shown = moved(wanted, c.judged())
        return self.verdict(deviations, f"scales {', '.join(scales)}", shown=shown)
