"""The BatchNorms that mindspore.boost 2.10 removes, as running it showed: tests/passes/upstream_blocks.py has the same
network in MindSpore, and tests/passes/test_less_bn.py runs both."""

from __future__ import annotations

import pytest
from boost_compile.passes.less_bn.upstream import removed_upstream

from tests.passes.less_bn.forward import Network


def inverted(net: Network, x: str, name: str, expansion: bool = True, shortcut: bool = False) -> str:
    """An inverted residual: the depthwise convolution, after an expansion, and the projection."""
    y, at = x, 1
    for _ in range(1 + expansion):
        y = net.node("ReLU6", net.norm(f"{name}.{at}", net.conv(y)))
        at += 3
    y = net.norm(f"{name}.{at}", net.conv(y))
    return net.add(x, y) if shortcut else y


def dense(net: Network, x: str, name: str, layers: int) -> str:
    """Each layer takes all that was made before it."""
    for k in range(layers):
        y = net.conv(net.relu(net.norm(f"{name}.{k}.norm1", x)))
        y = net.conv(net.relu(net.norm(f"{name}.{k}.norm2", y)))
        x = net.node("Concat", net.tuple(x, y), "axis")
    return x


def basic(net: Network, x: str, name: str, down: bool = False, summed: bool = False) -> str:
    y = net.norm(f"{name}.2", net.conv(net.relu(net.norm(f"{name}.1", net.conv(x)))))
    beside = net.norm(f"{name}.down", net.conv(x)) if down else x
    return net.relu(net.node("AddN", net.tuple(y, beside)) if summed else net.add(y, beside))


def bottleneck(net: Network, x: str, name: str, down: bool = False) -> str:
    y = net.relu(net.norm(f"{name}.1", net.conv(x)))
    y = net.norm(f"{name}.3", net.conv(net.relu(net.norm(f"{name}.2", net.conv(y)))))
    return net.relu(net.add(y, net.norm(f"{name}.down", net.conv(x)) if down else x))


def removed(net: Network, result: str) -> set[str]:
    return {node.name for node in removed_upstream(net.anatomy(result)) if node.op.name == "BatchNorm"}


def test_a_network_of_all_blocks() -> None:
    net = Network("x", "axis")
    y = net.node("ReLU6", net.norm("stem", net.conv("x")))
    y = inverted(net, y, "mobile.0", expansion=False)
    y = inverted(net, y, "mobile.1")
    y = inverted(net, y, "mobile.2", shortcut=True)
    y = inverted(net, y, "mobile.3", shortcut=True)
    y = inverted(net, y, "mobile.4")
    y = dense(net, y, "dense", 3)
    y = net.node("AvgPool", net.conv(net.relu(net.norm("transition", y))))
    y = net.node("MaxPool", y)
    y = basic(net, y, "basic.0")
    y = basic(net, y, "basic.1")
    y = basic(net, y, "basic.2", down=True)
    y = basic(net, y, "basic.3", summed=True)
    assert removed(net, y) == {
        *(f"mobile.{k}.1" for k in range(1, 5)),
        *("dense.1.norm1", "dense.2.norm1"),
        *(f"basic.{k}.1" for k in range(4)),
        "basic.2.down",
    }


def test_bottlenecks() -> None:
    net = Network()
    y = net.relu(net.norm("stem", net.conv("x")))
    y = bottleneck(net, y, "0", down=True)
    y = bottleneck(net, y, "1")
    y = bottleneck(net, net.node("MaxPool", y), "2", down=True)
    assert removed(net, y) == {f"{k}.{i}" for k in range(3) for i in (1, 2)} | {"0.down", "2.down"}


def test_a_shortcut_behind_a_block_without_expansion() -> None:
    net = Network()
    y = inverted(net, net.node("ReLU6", net.norm("stem", net.conv("x"))), "0", expansion=False)
    assert removed(net, inverted(net, y, "1", shortcut=True)) == {"1.1"}


@pytest.mark.parametrize(
    ("pooled", "joined_first", "gone"),
    [
        (True, True, "second"),
        (True, False, "second"),
        (False, True, "first"),
        # Upstream takes a chain that breaks off up again with the next operand: here the concatenation itself.
        (False, False, "second"),
    ],
)
def test_a_layer_of_a_dense_block(pooled: bool, joined_first: bool, gone: str) -> None:
    """Behind a pooling it loses the BatchNorm between its convolutions, else that over the concatenation."""
    net = Network("x", "axis")
    joined = net.node("Concat", net.tuple(net.conv("x"), net.conv("x")), "axis")
    y = net.node("MaxPool", net.conv("x")) if pooled else joined
    y = net.conv(net.relu(net.norm("second", net.conv(net.relu(net.norm("first", y))))))
    result = net.tuple(joined, y) if joined_first else net.tuple(y, joined)
    assert removed(net, net.node("Concat", result, "axis")) == {gone}


def test_the_head_of_a_mobile_network() -> None:
    net = Network()
    y = net.node("ReLU6", net.norm("last", net.conv("x")))
    y = net.node("MatMul", net.node("ReduceMean", y), net.node("Load", "w"))
    assert removed(net, y) == {"last"}


def test_what_is_no_block_of_these_stays() -> None:
    net = Network("x", "other")
    y = net.norm("swapped.2", net.conv(net.relu(net.norm("swapped.1", net.conv("x")))))
    y = net.relu(net.add("x", y))  # the main branch comes second
    z = net.norm("sigmoid.2", net.conv(net.node("Sigmoid", net.norm("sigmoid.1", net.conv(y)))))
    y = net.add(z, y)
    assert removed(net, net.add(net.conv(y), "other")) == set()


@pytest.mark.parametrize("behind", ["MaxPool", "Concat"])
def test_a_dense_layer_beside_something_else_stays(behind: str) -> None:
    """Its result is joined with what is no concatenation."""
    net = Network("x", "axis")
    y = net.node("MaxPool", net.conv("x")) if behind == "MaxPool" else net.conv("x")
    y = net.conv(net.relu(net.norm("second", net.conv(net.relu(net.norm("first", y))))))
    assert removed(net, net.node("Concat", net.tuple(net.conv("x"), y), "axis")) == set()
