"""Tags of the weights whose gradients are to be centralized."""

from __future__ import annotations

from collections.abc import Iterable

from ..ir.analysis.effects.tokens import orders_only
from ..ir.analysis.training.gradient_path import gradient_paths, updating_graphs
from ..ir.analysis.training.network import BACKWARD, mark
from ..ir.analysis.training.weight_uses import BRINGING, Use, forward_uses
from ..ir.core.graph import Constant, Node
from ..ir.core.primitives import Family, facts, named
from ..ir.core.program import Program
from ..ir.core.report import PassResult
from ..ir.core.walk import walk
from ..ir.core.wording import counted
from .framework.base import Pass
from .framework.options import option
from .step.names import TAG

MATRIX_PRODUCTS = named(Family.MATMUL, Family.AFFINE)
CONVOLUTIONS = named(Family.CONVOLUTION, Family.TRANSPOSED_CONVOLUTION)
"""Where they are functions, the number of groups is the last operand."""
LOOKUPS = named(Family.LOOKUP, in_place=True)
RECURRENT = named(Family.RECURRENT)


class TagGradientCentralization(Pass):
    """Tags the weights of convolutions and matrix products: their gradients are to lose their mean.

    The tag is a note of the weight, ``centralize = [axes]``: all axes but the first. The text form and
    ``boost-inspect`` show it, and you may edit it. The pass tags a trained weight of more than one axis that the
    forward part gives to a convolution or matrix product, or joins with others for a recurrent layer. Weights of
    depthwise and grouped convolutions stay untagged, and so do tables that are looked up, unless ``embeddings=true``.

    Preserves training: alone it changes nothing.

    Source: ``mindspore.boost`` (``OptimizerProcess.add_grad_centralization``), which decides by names and layer
    classes.
    """

    name = "tag-gradient-centralization"
    early = True  # the tags must be there before they are lowered, and the forward part is still whole
    preserves = True
    embeddings: bool = option(False, help="tag tables that are looked up too, as mindspore.boost does")

    def run(self, program: Program) -> PassResult:
        result = self.result()
        trained = {path.weight for graph in updating_graphs(program) for path in gradient_paths(graph)}
        uses: dict[str, dict[Use, None]] = {}
        for graph in program.graphs.values():
            for name, found in forward_uses(graph).items():
                uses.setdefault(name, {}).update(dict.fromkeys(found))
        for name, variable in program.state.items():
            if variable.role != "weight":
                continue
            rank = len(variable.shape)
            if rank < 2:
                reason: str | None = "it has one axis at most: nothing is left to take a mean over"
            elif name not in trained:
                reason = "frozen, or its gradient is a constant"
            else:
                reason = _reason_against(uses.get(name, ()), self.embeddings)
            if reason is not None:
                result.miss(name, reason)
                continue
            variable.info[TAG] = list(range(1, rank))
            result.matched += 1
        result.changed = result.matched
        result.summary = f"{counted(result.matched, 'weight')} tagged for gradient centralization"
        return result


def _reason_against(uses: Iterable[Use], embeddings: bool) -> str | None:
    """Why the gradient of a weight with these forward uses is not to be centralized; None if it is."""
    products = 0
    for node, i in uses:
        name = node.op.name
        if name in LOOKUPS:
            if embeddings:
                return None
            return f"looked up by {name} (%{node.name}): an embedding (embeddings=true tags it)"
        convolved = name in CONVOLUTIONS and i == facts(node.op).factors[1]
        if name == "DepthwiseConv2dNative" or (convolved and _is_grouped(node)):
            return f"weight of a grouped or depthwise convolution (%{node.name})"
        products += name in MATRIX_PRODUCTS or convolved or _serves_recurrence(node)
    if products:
        return None
    names = ", ".join(dict.fromkeys(node.op.name for node, _ in uses))
    return f"no convolution or matrix product takes it, but {names or 'nothing in the forward part'}"


def _serves_recurrence(node: Node) -> bool:
    """Whether a recurrent layer is all that takes what ``node`` joins."""
    if node.op.name in RECURRENT:
        return True
    if facts(node.op).family is not Family.JOIN:
        return False

    def taking(here: Node) -> list[Node]:
        users = [user for user, i in here.use_sites() if not orders_only(user, i)]
        return [user for user in users if user.op.name in BRINGING or mark(user) != BACKWARD]

    reached = walk([node], lambda here: taking(here) if here is node or here.op.name in BRINGING else ())
    takers = [user for user in reached if user is not node and user.op.name not in BRINGING]
    return bool(takers) and all(user.op.name in RECURRENT for user in takers)


def _is_grouped(convolution: Node) -> bool:
    attributes = convolution.attributes
    groups = attributes.get("group", attributes.get("groups"))
    if groups is None:
        last = convolution.operand(convolution.num_operands - 1)
        groups = last.value if isinstance(last, Constant) else None
    return isinstance(groups, int) and groups > 1
