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
Make = Callable[[Spec, Sequence[StateVariable], Collection[str], float | None, Collection[str]], Program]


def find_own(name: str, target: str) -> Make | None:
    """What makes the optimizer of that name, as :data:`ir.core.updating.Export` does, told besides which weights decay;
    None for one that is MindSpore's. Names are compared without case and hyphens."""
    module = OWN.get(_own_name(name, target))
    if module is None:
        return None

    def make(
        spec: Spec,
        weights: Sequence[StateVariable],
        taken: Collection[str],
        rate: float | None,
        decaying: Collection[str],
    ) -> Program:
        settled = options_of(spec, module.DEFAULTS, rate)
        made: Program = module.make(Composed(settled, weights, module.SLOTS, taken, decaying))
        return made

    return make


def settle_own(spec: Spec, target: str, rate: float | None) -> Spec | None:
    """The optimizer by its name in :data:`OWN`, with all its options; None for one that is MindSpore's."""
    name = _own_name(spec.name, target)
    return Spec(name, options_of(spec, OWN[name].DEFAULTS, rate).options) if name else None


def _own_name(name: str, target: str) -> str:
    own = next((own for own in OWN if _key(own) == _key(name)), "")
    return "" if own == "lamb" and target != "cpu" else own


def _key(name: str) -> str:
    return name.replace("-", "").replace("_", "").lower()
