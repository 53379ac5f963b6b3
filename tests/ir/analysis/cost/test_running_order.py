"""The order in which MindSpore runs a graph, on graphs whose order can be worked out by hand."""

from __future__ import annotations

from boost_compile.ir.analysis.cost.memory import graph_memory
from boost_compile.ir.analysis.cost.running_order import running_order
from boost_compile.ir.core.graph import Graph
from boost_compile.ir.text import parse_program

from tests.synthetic import layers


def step(body: str) -> Graph:
    return parse_program(f"graph @step(%x: float32[256]) {{\n{body}\n}}\n").graphs["step"]


def order(graph: Graph) -> list[str]:
    return [node.name for node in running_order(graph)]


def test_kernels_that_are_ready_wait_in_one_queue() -> None:
    """%late is written last and waits for %a alone, so it runs in %a's second round; %d waits for %c."""
    graph = step(
        "%a = Exp(%x)\n%b = Neg(%x)\n%c = Neg(%b)\n%d = Mul(%c, %a)\n%late = Neg(%a)\n%e = Mul(%d, %late)\nreturn %e"
    )
    assert order(graph) == ["a", "b", "late", "c", "d", "e"]


def test_what_no_kernel_computes_waits_in_no_queue() -> None:
    """The view of %a is there with %a: its user queues before that of %b."""
    graph = step(
        "%a = Exp(%x)\n%b = Neg(%x)\n%n = Neg(%b)\n"
        "%v = Reshape(%a, (256,)) : float32[256]\n%m = Neg(%v)\n%e = Mul(%n, %m)\nreturn %e"
    )
    assert order(graph) == ["a", "v", "b", "m", "n", "e"]


def test_an_effect_waits_for_its_token() -> None:
    graph = parse_program(
        "state %w: float32[256] role=weight\n"
        "graph @step(%x: float32[256]) {\n%w.0 = Load(%w, umonad) : float32[256]\n%a = Exp(%w.0)\n%b = Neg(%x)\n"
        "%u = UpdateState(umonad, %w.0, %a)\n%c = Neg(%b)\n%s = AssignAdd(%w, %x, %u) : float32[256]@w\n"
        "%v = UpdateState(%u, %s)\n%r = Depend(%c, %v)\nreturn %r\n}\n"
    ).graphs["step"]
    found = order(graph)
    assert found.index("a") < found.index("u") < found.index("s") < found.index("v")
    assert found.index("s") < found.index("c"), "the write is ready with %a, before %b is done"


def test_the_order_is_one_and_keeps_operands_first() -> None:
    graph = layers(200).graphs["step"]
    nodes = running_order(graph)
    at = {node: position for position, node in enumerate(nodes)}
    assert sorted(at.values()) == list(range(len(graph)))
    assert all(at[v] < at[node] for node in graph for v in node.operands if v in at)


def test_updates_that_the_file_has_last_run_as_soon_as_they_can() -> None:
    """Four gradients, whose updates stand at the end of the file: two values are alive at once, and not five."""
    weights = "".join(f"state %w{i}: float32[256] role=weight\n" for i in range(4))
    chain = "".join(f"%g{i} = Exp(%{'x' if i == 0 else f'g{i - 1}'})\n" for i in range(4))
    updates = "".join(f"%s{i} = AssignAdd(%w{i}, %g{i}, umonad) : float32[256]@w{i}\n" for i in range(4))
    done = "".join(f"%u{i} = UpdateState({'umonad' if i == 0 else f'%u{i - 1}'}, %s{i})\n" for i in range(4))
    body = f"{chain}{updates}{done}%r = Depend(float32[]<0.0>, %u3)\nreturn %r"
    graph = parse_program(f"{weights}graph @step(%x: float32[256]) {{\n{body}\n}}\n").graphs["step"]
    assert graph_memory(graph).peak == 4 * 1024
    graph.reorder(running_order(graph))
    assert graph_memory(graph).peak == 2 * 1024
