"""The effects that make an update: what a skipped or replaced one leaves out."""

from __future__ import annotations

from collections.abc import Mapping

from ...ir.analysis.effects.state_access import Effect
from ...ir.analysis.training.network import network_parts
from ...ir.analysis.training.own_writes import leading_writes
from ...ir.core.program import CYCLE_ROLES
from ...ir.rewrite.effects.editing import Effects


def update_effects(fx: Effects, roles: Mapping[str, str]) -> list[Effect]:
    """The effects of the update side, but for those on state of the cycle itself (accumulators, counters), output, and
    what happens in front of the forward part. ``roles``: of each state."""
    parts = network_parts(fx.graph)
    leading = leading_writes(fx.list, parts)
    return [
        e for e in fx.list
        if not (e.passive or e.io or e.node in parts or e in leading)
        and not (e.writes and all(roles.get(state.name) in CYCLE_ROLES for state in e.writes))
    ]  # fmt: skip
