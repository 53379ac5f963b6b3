"""The order in which MindSpore's runtime runs the nodes of a graph, which is not the file's.

Every kernel is an actor. It is ready once its operands are computed and what it waits for is over; kernels that are
ready stand in one queue, and finishing one makes its users ready, in the order in which they use it. So a gradient of a
weight is computed as soon as the backward part has what it needs, and its update follows at once, where the exporter
writes all updates at the end. Found in the task list of MindSpore 2.10's memory tracker (``MS_ALLOC_CONF`` with
``memory_tracker:True``).
"""

from __future__ import annotations

from collections import deque

from ...core.graph import Graph, Node
from ...core.primitives import VIEWS, Family, facts

_NO_KERNELS = frozenset({Family.ORDER, Family.TUPLE, Family.CLOSURE})


def running_order(graph: Graph) -> list[Node]:
    """The nodes of ``graph`` as they run, one worker taken for granted. What no kernel computes (views, tuples, tokens)
    stands where the last of its operands is done. Linear in nodes and operands."""
    waiting = {node: len({v for v in node._operands if isinstance(v, Node)}) for node in graph}
    order: list[Node] = []
    queue: deque[Node] = deque()

    def ready(nodes: list[Node]) -> None:
        """Kernels queue; what is none is done at once, and so are those of its users that are none."""
        stack = nodes[::-1]
        while stack:
            node = stack.pop()
            if is_kernel(node):
                queue.append(node)
            else:
                order.append(node)
                stack.extend(reversed(released(node)))

    def released(node: Node) -> list[Node]:
        """The users that waited for this node alone."""
        found = []
        for user in node.uses:
            if user in waiting:
                waiting[user] -= 1
                if waiting[user] == 0:
                    found.append(user)
        return found

    ready([node for node, count in waiting.items() if count == 0])
    while queue:
        node = queue.popleft()
        order.append(node)
        ready(released(node))
    return order


def is_kernel(node: Node) -> bool:
    """Whether the runtime computes a node, and does not merely pass something on."""
    return node.op.name not in VIEWS and facts(node.op).family not in _NO_KERNELS
