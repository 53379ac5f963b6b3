"""Residual blocks found by dataflow: where they join, which normalisations are inside, which end a branch."""

from __future__ import annotations

import pytest
from boost_compile.passes.less_bn.residual import residual_joins

from tests.passes.less_bn.forward import Network

Found = list[tuple[str, set[str], set[str]]]


def joins(net: Network, result: str) -> Found:
    """The addition, the normalisations that end a branch, and the other ones inside."""
    return [
        (join.node.name, {n.name for n in join.last}, {n.name for n in join.inner})
        for join in residual_joins(net.anatomy(result))
    ]


def branch(net: Network, x: str, *names: str) -> str:
    for name in names:
        x = net.relu(net.norm(name, net.conv(x)))
    return x


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("how", ["Add", "AddExt", "AddN", "tuple", "InplaceAddExt", "in one dimension"])
def test_a_block_in_every_spelling_of_its_sum(how: str, turned: bool) -> None:
    net = Network()
    if how == "in one dimension":
        net.image, how = "float32[1,2,4]", "Add"
    x = branch(net, "x", "stem")
    summands = [branch(net, x, "one", "two"), branch(net, x, "beside")]
    summands = summands[::-1] if turned else summands
    joined = net.node("AddN", net.tuple(*summands)) if how == "tuple" else net.node(how, *summands)
    assert joins(net, branch(net, joined, "behind")) == [(joined, {"two", "beside"}, {"one"})]


def test_a_block_from_the_input_itself() -> None:
    net = Network()
    joined = net.add("x", branch(net, "x", "one", "two"))
    assert joins(net, joined) == [(joined, {"two"}, {"one"})]


def test_normalisations_in_front_of_the_convolutions() -> None:
    net = Network()
    y = net.conv(net.relu(net.norm("entry", "x")))
    joined = net.add("x", net.conv(net.relu(net.norm("last", y))))
    assert joins(net, joined) == [(joined, {"last"}, {"entry"})]


def test_a_branch_without_normalisations() -> None:
    """What stands in front of the block is not the last of its branch."""
    net = Network()
    x = branch(net, "x", "stem")
    joined = net.add(net.conv(x), branch(net, x, "one", "two"))
    assert joins(net, joined) == [(joined, {"two"}, {"one"})]


def test_three_branches() -> None:
    net = Network()
    joined = net.node("AddN", branch(net, "x", "a", "b"), branch(net, "x", "c", "d"), branch(net, "x", "e"))
    assert joins(net, joined) == [(joined, {"b", "d", "e"}, {"a", "c"})]


def test_a_branch_that_parts_and_meets_again_ends_on_both_ways() -> None:
    """By a product: the only sum is that of the block."""
    net = Network()
    y = branch(net, "x", "shared")
    product = net.node("Mul", branch(net, y, "left"), net.conv(y))
    joined = net.add("x", product)
    assert joins(net, joined) == [(joined, {"left", "shared"}, set())]


def test_a_block_inside_a_branch_counts_for_itself() -> None:
    net = Network()
    y = branch(net, "x", "outer.1")
    inside = net.add(y, branch(net, y, "inner.1", "inner.2"))
    joined = net.add("x", branch(net, inside, "outer.2", "outer.3"))
    assert joins(net, joined) == [
        (inside, {"inner.2"}, {"inner.1"}),
        (joined, {"outer.3"}, {"outer.1", "outer.2"}),
    ]


def test_blocks_one_behind_the_other() -> None:
    net = Network()
    first = net.add("x", branch(net, "x", "a", "b"))
    second = net.add(branch(net, first, "c", "d"), first)
    assert joins(net, second) == [(first, {"b"}, {"a"}), (second, {"d"}, {"c"})]


def test_sums_that_end_no_block() -> None:
    net = Network("x", "other")
    y = branch(net, "x", "a", "b")
    net.add(y, y)  # twice the same
    net.add(y, branch(net, "other", "c"))  # of two inputs
    net.add("x", net.relu("x"))  # no convolution
    net.add(y, "w")  # of a weight
    flat = [net.node("Flatten", v, type_="float32[2,16]") for v in (y, "x")]
    net.node("Add", *flat, type_="float32[2,16]")  # no images
    net.node("Mul", y, "x")
    net.node("Add", y, net.node("ReduceMean", "x", type_="float32[1,2,1,1]"))  # of another shape
    assert joins(net, net.conv(y)) == []
