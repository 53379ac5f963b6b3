"""Adapters beside layers: what they begin with, what moves, and their gradients by the chain rule."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from ...ir.core.wording import counted
from ...ir.rewrite.evaluation import adapters_of, merged_values
from ...passes.framework.manager import compile_program
from .base import without
from .context import Context, NotApplicable, Property, differing
from .gradient_error import Exact
from .promises import LORA
from .report import FAILED, PASSED, VACUOUS, Deviation, Result

RESULT_UNITS = 2
"""Rounding units of half precision by which fresh adapters may change a result. On a CPU kernels pass each other values
that are not rounded to it (``ir/rewrite/cpu/half_kernels.py``), and the addition of an adapter rounds."""
LEAST, UNITS = 1e-4, 64
"""How far a gradient may be off, relative to its length: rounding in sums over rows, or so many units of the type that
the backward part computes in."""


class Adapters(Property):
    """The network with fresh adapters gives the losses of the one without them (exact, but in half precision). After a
    cycle of the program, the weights that its adapters stand for, and all others that it should leave, have every bit
    that they had (exact). With adapters that do something, their gradients are those of the merged weight, which the
    original computes, times the other matrix. Each is compared as a whole, by the root of the sum of squares."""

    name = "adapters"
    promise = "adapters begin as nothing, they alone move, and their gradients are those of the weights they change"

    def check(self, c: Context) -> Result:
        lora = c.promises.one(LORA)
        if lora is None:
            raise NotApplicable("no pass puts adapters beside layers")
        c.needs_forward()
        batch = c.micro_batches(0)[:1]
        whole = without(c.original, c.promises, c.program.target, LORA)
        fresh = compile_program(whole, [lora], reproducer_directory=None)
        plain, adapted = (Exact(program, batch, c.device) for program in (whole, fresh))
        first = [exact.reference.micro(exact.reference.initial, batch[0]).outputs for exact in (plain, adapted)]
        for name, value in first[0].items():
            if not _alike(value, first[1].get(name), adapted.reference.probe.unit):
                return self.failed(f"with fresh adapters {name} is {first[1].get(name)}, and without them {value}")
        weights = plain.reference.probe.weights
        still = [n for n in weights if not any(fnmatchcase(n, glob) for glob in lora.options()["train"])]
        c.subject.restart()
        ran = c.subject.cycle(c.micro_batches(0))
        moved = differing(ran.state, c.reference.initial, [n for n in still if n in c.subject.names])
        if moved:
            return self.failed(f"the program moves '{moved[0]}', which is to stand still")

        rng = np.random.default_rng(c.seed)
        values: dict[str, Any] = {name: variable.initial for name, variable in fresh.state.items()}
        for adapter in adapters_of(fresh).values():
            size = np.std(values[adapter.weight]) / max(np.std(values[adapter.a]) * adapter.scale, 1e-9)
            drawn = rng.standard_normal(values[adapter.b].shape) * size / adapter.rank
            values[adapter.b] = drawn.astype(values[adapter.b].dtype)
        merged = {n: v for n, v in merged_values(fresh, values).items() if n in adapters_of(fresh)}
        set_b = {adapter.b: values[adapter.b] for adapter in adapters_of(fresh).values()}
        wanted = Exact(whole.with_values(merged), batch, c.device).gradients[0]
        found = Exact(fresh.with_values(set_b), batch, c.device).gradients[0]
        errors: dict[str, float] = {}
        for adapter in adapters_of(fresh).values():
            gradient = wanted[adapter.weight].T if adapter.inputs_first else wanted[adapter.weight]
            a, b = (values[name].astype(np.float64) for name in (adapter.a, adapter.b))
            for name, expected in (
                (adapter.a, adapter.scale * b.T @ gradient),
                (adapter.b, adapter.scale * gradient @ a.T),
            ):
                length = float(np.linalg.norm(expected))
                if length:
                    errors[name] = float(np.linalg.norm(found[name] - expected)) / length
        if not errors:
            return self.result(VACUOUS, "no gradient to speak of")
        bound = max(LEAST, UNITS * adapted.reference.probe.unit)
        worst = max(errors, key=lambda name: errors[name])
        off = errors[worst]
        detail = f"the gradients of {counted(len(errors) // 2, 'adapter')}; {counted(len(still), 'weight')} stood still"
        return self.result(
            FAILED if off > bound else PASSED, detail, Deviation(worst, off, off, 0.0, bound, 0.0, off / bound)
        )


def _alike(one: Any, other: Any, unit: float) -> bool:
    """Whether two results have the same bits, or are close where ``unit`` is that of half precision."""
    a, b = np.asarray(one), np.asarray(other)
    if a.tobytes() == b.tobytes():
        return True
    if unit <= np.finfo(np.float32).eps or a.shape != b.shape or not np.issubdtype(a.dtype, np.floating):
        return False
    largest = np.abs(a).max(initial=0.0)
    return bool(np.isfinite(largest) and np.allclose(a, b, rtol=0.0, atol=RESULT_UNITS * unit * largest))
