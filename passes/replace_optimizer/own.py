"""The optimizers that stand here, by name."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from types import ModuleType

from ...ir.core.program import Program, StateVariable
from ...ir.core.spec import Spec
from . import lamb, lion, muon, schedule_free
from .composed import Composed, options_of

OWN: dict[str, ModuleType] = {"lion": lion, "muon": muon, "schedule-free-adamw": schedule_free, "lamb": lamb}
BESIDES = tuple(name for name in OWN if name != "lamb")
"""Those that MindSpore does not have; its Lamb lacks a kernel for a CPU."""
Make = Callable[[Spec, Sequence[StateVariable], Collection[str], float | None], Program]


def find_own(name: str, target: str) -> Make | None:
    """What makes the optimizer of that name, as :data:`ir.core.updating.Export` does; None for one that is MindSpore's.
    Names are compared without case and hyphens."""
    key = _key(name)
    module = next((module for own, module in OWN.items() if _key(own) == key), None)
    if module is None or (module is lamb and target != "cpu"):
        return None

    def make(spec: Spec, weights: Sequence[StateVariable], taken: Collection[str], rate: float | None) -> Program:
        made: Program = module.make(Composed(options_of(spec, module.DEFAULTS, rate), weights, module.SLOTS, taken))
        return made

    return make


def _key(name: str) -> str:
    return name.replace("-", "").replace("_", "").lower()
