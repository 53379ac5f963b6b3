"""A process that is alone has itself to ask; what ranks of a job tell each other is shown by the tests of jobs."""

from __future__ import annotations

import numpy as np
import pytest
from boost_compile.ir.core.errors import RuntimeFailure
from boost_compile.runtime.engine.exchange import Exchange
from boost_compile.runtime.engine.ranks import Ranks

VALUES = {"a": np.arange(3, dtype=np.float16), "b": np.ones((2, 2))}


def test_alone_everybody_agrees() -> None:
    alone = Exchange(Ranks())
    assert alone.agree() == []
    assert alone.agree(False, True, False) == [False, True, False]
    assert alone.differing(VALUES) == []
    alone.check_equal(VALUES)
    for found in (alone.mean(VALUES), *alone.gather(VALUES)):
        assert all(found[name] is VALUES[name] for name in VALUES)


class TwoRanks(Exchange):
    """The other rank of this job adds what it is made with."""

    def __init__(self, other: np.ndarray):
        super().__init__(Ranks(0, 2))
        self.other = other

    def total(self, values: np.ndarray) -> np.ndarray:
        return values + self.other.reshape(values.shape)


def hashes(values: dict[str, np.ndarray]) -> np.ndarray:
    """What rank 1 puts into the table of hashes."""
    seen: list[np.ndarray] = []

    class Listening(Exchange):
        def total(self, table: np.ndarray) -> np.ndarray:
            seen.append(table.copy())
            return table

    Listening(Ranks(1, 2)).differing(values)
    return seen[0]


def test_what_differs_is_named_by_its_bits() -> None:
    other = {**VALUES, "b": np.nextafter(VALUES["b"], 2)}
    pair = TwoRanks(hashes(other))
    assert pair.differing(VALUES) == ["b"]
    with pytest.raises(RuntimeFailure, match="'b' differ between rank 0, rank 1"):
        pair.check_equal(VALUES)
    assert TwoRanks(hashes(VALUES)).differing(VALUES) == []


def test_the_mean_is_taken_in_float32_and_keeps_types() -> None:
    mean = TwoRanks(np.full(7, 2.0, np.float32)).mean(VALUES)
    assert (mean["a"].dtype, mean["a"].tolist()) == (np.float16, [1.0, 1.5, 2.0])
    assert mean["b"].tolist() == [[1.5, 1.5], [1.5, 1.5]]


def test_one_rank_is_enough_to_agree() -> None:
    assert TwoRanks(np.array([1, 0, 0, 1], np.float32)).agree(False, True, False) == [True, True, False]
