"""The paths of gradients as passes ask for them: unscaled in front of all else, as the file tells or the user says."""

from __future__ import annotations

from collections.abc import Iterable

from ...ir.analysis.training.gradient_path import gradient_paths
from ...ir.analysis.training.stages import GradientPath
from ...ir.core.errors import OptionError, PassError
from ...ir.core.graph import Graph
from ...ir.core.report import PassResult
from ...ir.rewrite.stages import unscale_first

TOLD = "told"
HELP = "the number by which the optimizer divides a scaled gradient, or none; told: as the file tells"


def check_unscale(said: str, name: str) -> None:
    """OptionError for what is neither a number, ``none`` nor ``told``."""
    try:
        valid = said in (TOLD, "none") or float(said) > 0
    except ValueError:
        valid = False
    if not valid:
        raise OptionError(f"pass '{name}': option 'unscale' must be a number above 0, none or told, not '{said}'")


def unscaled_paths(graph: Graph, said: str) -> list[GradientPath]:
    """The paths of a graph's gradients. Changes the graph where an optimizer unscales behind its weight decay.
    PassError for a factor that may be the optimizer's or not."""
    number = None if said == TOLD else 1.0 if said == "none" else float(said)
    paths = gradient_paths(graph, unscale=number)
    for path in paths:
        if path.doubt:
            raise PassError(
                f"{path.doubt}: say unscale=NUMBER, by which the gradient of '{path.weight}' is divided to unscale it, "
                "or unscale=none"
            )
    if not unscale_first(paths):
        return paths
    assumed = {path.weight: path.assumed for path in paths}
    paths = gradient_paths(graph, unscale=number)
    for path in paths:  # what stands in front by now is marked, and no question any more
        path.assumed = path.assumed or assumed[path.weight]
    return paths


def remark(result: PassResult, paths: Iterable[GradientPath]) -> None:
    """Says what was assumed of gradients."""
    for weight, assumed in {path.weight: path.assumed for path in paths}.items():
        if assumed:
            result.miss(weight, assumed)
