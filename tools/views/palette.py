"""Colours of parts and passes, the same in every format: fill by part, border by the pass that made a node."""

from __future__ import annotations

from ...ir.training import BACKWARD, FORWARD, OPTIMIZER, OTHER

FILLS = {FORWARD: "#cfe3f7", BACKWARD: "#fbdcc0", OPTIMIZER: "#cdebd0", OTHER: "#e6e6e6"}
STROKES = {FORWARD: "#2f6fab", BACKWARD: "#b8651b", OPTIMIZER: "#2e7d46", OTHER: "#767676"}
PASS_STROKES = ("#9c27b0", "#c2185b", "#00838f", "#5d4037", "#455a64", "#827717", "#4527a0", "#d84315")


def pass_colours(passes: list[str]) -> dict[str, str]:
    """A colour for each pass, in the order of the pipeline."""
    return {name: PASS_STROKES[i % len(PASS_STROKES)] for i, name in enumerate(dict.fromkeys(passes))}
