"""Gradient centralization in one word: the weights are tagged, then their gradients lose their mean."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..ir.analysis.training.stages import CENTRALIZE
from .framework.base import Pass
from .framework.options import option


class GradientCentralization(Pass):
    """Takes the mean over all axes but the first away from the gradients of dense and convolution weights.

    It runs in two stages, which the report names: ``tag-gradient-centralization`` marks the weights before any other
    pass, and ``lower-gradient-centralization`` takes the mean away in front of the update. A pipeline may name a stage
    alone, where you edit the tags in between.

    Changes training.

    Source: Yong et al., Gradient Centralization, 2020; ``mindspore.boost`` (``OptimizerProcess``).
    """

    name = "gradient-centralization"
    at_stage = CENTRALIZE
    preserves = False
    embeddings: bool = option(False, help="tables that are looked up too, as mindspore.boost does")

    def stages(self) -> Mapping[str, Mapping[str, Any]]:
        return {"tag-gradient-centralization": {"embeddings": self.embeddings}, "lower-gradient-centralization": {}}
