"""The laws by which two terms may be equal though they are not the same term: each with its statement and conditions.

A proof names the laws that it used. ``tests/ir/proof/test_laws.py`` holds each of them against numpy on random inputs.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Law:
    """``algebra``: its name there. ``holds``: the statement. ``where``: the conditions under which the prover uses it.
    ``exact``: whether floating point keeps every bit."""

    name: str
    algebra: str
    holds: str
    where: str
    exact: bool = False


LAWS: dict[str, Law] = {
    law.name: law
    for law in (
        Law(
            "copy", "a copy is the value",
            "TensorMove(x) = x, and so for every primitive that copies", "nothing writes the copy", exact=True,
        ),
        Law(
            "in-place", "definition of += and -=",
            "AssignAdd(s, x) leaves s + x in s, AssignSub(s, x) leaves s - x", "", exact=True,
        ),
        Law(
            "mask", "definition of the dropout mask",
            "DropoutGrad(x, m) = y, where Dropout(x) is (y, m)", "both keep the same share", exact=True,
        ),
        Law(
            "at rest", "definition of BatchNorm",
            "the first result of BatchNorm is the same by the moving mean m and variance v and by those of the batch",
            "m and v are results 3 and 4 of BatchNorm in training, for the same x, gamma, beta and epsilon; on CPU",
            exact=True,
        ),
        Law(
            "sums", "commutativity and associativity of +",
            "sums may be taken in any order; a - b = a + (-1)·b; AddN((a, b, …)) = a + b + …", "numbers",
        ),
        Law(
            "products", "commutativity and associativity of ·, distributivity",
            "products may be taken in any order; Square(x) = x·x; a·(b + c) = a·b + a·c", "numbers",
        ),
        Law(
            "quotients", "cancellation",
            "a / b = a·b⁻¹; b·b⁻¹ = 1", "b is a number of the proof, a constant or a loss scale: not 0",
        ),
        Law(
            "cast", "a cast is the identity",
            "Cast(x) = x between floating-point types", "no rounding, over the reals",
        ),
        Law("zeros", "zero and one", "ZerosLike(x) = 0, OnesLike(x) = 1; 0·x = 0", "x is finite"),
        Law(
            "select", "case distinction",
            "Select(true, a, b) = a = Select(c, a, a), Select(false, a, b) = b, Select(not c, a, b) = Select(c, b, a)",
            "",
        ),
        Law("weights", "case distinction at zero", "Select(x ≠ 0, x·y, 0) = x·y", "x is a scalar, y is finite"),
        Law(
            "logic", "Boolean algebra, order",
            "and, or, not of truth values; x > y where x - y is a positive number of the proof", "",
        ),
        Law("extremes", "commutativity of max and min", "Maximum and Minimum do not care which operand is first", ""),
        Law(
            "linear", "homogeneity of linear maps", "f(s·x) = s·f(x), and so for joint operands",
            "s is a scalar; f is linear by the table, or goes back through a loop, by the analysis of the derivative; "
            "a joint operand 0·x has any factor, x is finite",
        ),
        Law(
            "induction", "induction over micro-batches",
            "a state that every micro-batch adds t to holds the sum of t over them", "it held 0 at first",
        ),
        Law(
            "mean", "definition of the mean",
            "the sum of t over N micro-batches is N times its mean", "N is at least 1",
        ),
        Law(
            "ranks", "linearity of a sum over ranks",
            "AllReduce(s·x) = s·AllReduce(x); the sum over ranks of N times a mean is M times the mean of all",
            "s is the same on all ranks; M micro-batches are taken on all ranks together, at least 1",
        ),
        Law(
            "layout", "reshaping and slicing back",
            "Reshape(Reshape(x)) = Reshape(x); Reshape(x) to its own shape, and Slice(Concat(x, …)) at the "
            "bounds of x, are x; AllReduce of Reshape or Concat is Reshape or Concat of AllReduce", "shapes are fixed",
        ),
        Law(
            "transposed", "transpose of a product",
            "Transpose(x·y) = Transpose(y)·Transpose(x); a product that reads x transposed is one of "
            "Transpose(x)", "matrices alone or in equal stacks; types of floating-point numbers are one",
        ),
        Law(
            "draws", "equal draws",
            "a random primitive draws the same numbers", "seeds differ between the graphs of a cycle",
        ),
    )
}  # fmt: skip
