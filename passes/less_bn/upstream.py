"""The removals of ``mindspore.boost.LessBN``: the blocks that its C++ pass knows, and how it looks for them.

Known from MindSpore 2.10 (less_batch_normalization.cc) and tried against it. From a root (an addition, a ReLU6, a
tuple such as the operands of a concatenation, a pooling) the pass follows first operands: of the root's first operand
until the first chain of a pattern is done, then of the second operand along the second chain. The first pattern that
comes to its end counts. A removed BatchNorm is stepped over from then on.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...ir.analysis.training.anatomy import TrainingAnatomy
from ...ir.analysis.training.network import FORWARD
from ...ir.core.graph import Node, Value

ROOTS = frozenset({"Add", "ReLU6", "MatMul", "MakeTuple", "MaxPool"})
PRIMITIVES = {
    "b": "BatchNorm", "x": "BatchNorm", "c": "Conv2D", "r": "ReLU", "6": "ReLU6", "a": "Add", "j": "Concat",
    "p": "MaxPool", "m": "ReduceMean", "*": "",
}  # fmt: skip
"""The letters of the patterns, from output to input: ``x`` is a BatchNorm that goes, ``b`` one that stays, ``*`` any
node (where upstream means the TupleGetItem of a BatchNorm, it takes whatever stands there)."""
# Four more of upstream's remove nothing but what these remove.
PATTERNS: tuple[tuple[str, ...], ...] = (
    # Bottleneck and basic blocks, with a downsampling convolution, an activation or the stem's pooling beside.
    ("*bcr *xcr *xcr", "r"),
    ("*bcr *xcr *xc", "*xc"),
    ("*bcr *xcr", "*xc"),
    ("*bcr *xc", "p"),
    ("*bcr *xcr", "r"),
    # Inverted residuals: the one behind the expansion, with a shortcut or behind a block with one, or without any.
    ("*", "*bc6 *bc6 *xc *b"),
    ("*xca",),
    ("m6*xc",),
    ("*bc6 *xc *bc6 *bc6 *b",),
    # Dense blocks: the one over a concatenation; beside a pooling the one between the two convolutions.
    ("j", "cr*b cr*x j"),
    ("cr*xj",),
    ("j", "cr*x cr*b p"),
)


def removed_upstream(found: TrainingAnatomy) -> dict[Node, Node]:
    """The BatchNorms that upstream removes, with the root of their block."""
    roots = [
        node
        for node in found.graph
        if node.op.name in ROOTS
        and found.part(node) == FORWARD
        and node.operands
        and all(isinstance(v, Node) for v in node.operands)
    ]
    removed: dict[Node, Node] = {}
    before = -1
    while len(removed) > before:  # what goes brings nodes together, which may make a pattern of them
        before = len(removed)
        for root in reversed(roots):
            for pattern in PATTERNS:
                gone = _match(root, pattern, removed)
                if gone is not None:
                    removed.update((node, root) for node in gone)
                    break
    return removed


def _match(root: Node, pattern: tuple[str, ...], removed: dict[Node, Node]) -> list[Node] | None:
    """The BatchNorms that the pattern removes; None where it does not come to its end. A chain that breaks off is
    taken up again by the next operand, as upstream does it."""
    letters = [letter for chain in pattern for letter in chain if letter != " "]
    ends = {len(pattern[0].replace(" ", "")), len(letters)}
    gone: list[Node] = []
    at = 0
    for operand in root.operands:
        for node in _chain(operand, removed):
            letter = letters[at]
            if node.op.name != PRIMITIVES[letter] and letter != "*":
                break
            if letter == "x":
                gone.append(node)
            at += 1
            if at == len(letters):
                return gone
            if at in ends:
                break
    return None


def _chain(value: Value, removed: dict[Node, Node]) -> Iterator[Node]:
    """A value's node, that of its first operand, and so on, without removed BatchNorms and what takes their result."""
    while isinstance(value, Node):
        above = value.operand(0) if value.operands else None
        if value in removed:
            value = value.operand(0)
        elif above in removed:
            value = above
        else:
            yield value
            if above is None:
                return
            value = above
