"""Half precision: the network computes what the original's does, in a type that rounds more.

No law says how much. So types of floating-point numbers are one here, a cast between them is none, and the proof is of
what holds where nothing is rounded.
"""

from __future__ import annotations

from ...core.program import Program
from .statement import Stated

PASS = "mixed-precision"


def asked(program: Program) -> bool:
    return any(r.name == PASS and r.changed for r in program.reports)


def state(program: Program) -> list[Stated]:
    options = next((r.options for r in program.reports if r.name == PASS), {})
    says = f"the network computes in {options.get('dtype', 'half precision')}; the same where nothing is rounded"
    return [Stated(PASS, options, says, ())] if asked(program) else []
