"""Colours, the same in every format: fill by part, border by the pass that made a node."""

from __future__ import annotations

from ...ir.analysis.cost.memory import ACTIVATION, BACKWARD_VALUE, GRADIENT, UPDATE_VALUE
from ...ir.analysis.training.network import BACKWARD, FORWARD, OPTIMIZER, OTHER, RECOMPUTED

FILLS = {
    FORWARD: "#cfe3f7", RECOMPUTED: "#f3e6a6", BACKWARD: "#fbdcc0", OPTIMIZER: "#cdebd0", OTHER: "#e6e6e6",
}  # fmt: skip
STROKES = {
    FORWARD: "#2f6fab", RECOMPUTED: "#8a7420", BACKWARD: "#b8651b", OPTIMIZER: "#2e7d46", OTHER: "#767676",
}  # fmt: skip
PASS_STROKES = ("#9c27b0", "#c2185b", "#00838f", "#7b5a4a", "#5b6f7a", "#827717", "#5e4bc0", "#d84315")
MEMORY = {
    "weights and other state": ("#8c97a5", "#6b7684"),
    "slots": ("#b0a7c8", "#857aa3"),
    "accumulators": ("#9c6bb5", "#a97cc0"),
    "inputs and constants": ("#c9c2b2", "#8f8878"),
    ACTIVATION: ("#4a8fd0", "#4f8fcb"),
    BACKWARD_VALUE: ("#e59a4d", "#d48a3f"),
    GRADIENT: ("#cf5a3c", "#cc6248"),
    UPDATE_VALUE: ("#4ca866", "#4b9c63"),
}
"""Bands of the memory plot, from the bottom up: colour on light and on dark."""


def pass_colours(passes: list[str]) -> dict[str, str]:
    """A colour for each pass, in the order of the pipeline."""
    return {name: PASS_STROKES[i % len(PASS_STROKES)] for i, name in enumerate(dict.fromkeys(passes))}
