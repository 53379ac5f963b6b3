"""What each rank takes of the data: together, and step by step, what one process with the whole batch takes."""

from __future__ import annotations

import numpy as np
import pytest
from boost_compile.ir.core.errors import RuntimeFailure
from boost_compile.ir.core.graph import Graph
from boost_compile.ir.core.types import tensor
from boost_compile.runtime.data.sources import Shard, open_source

from tests.runtime.training.support import dataset

COLUMNS = 3


def consumer(size: int | None) -> Graph:
    graph = Graph("step")
    graph.add_input("x", tensor("float32", -1 if size is None else size, COLUMNS))
    return graph


def data(rows: int) -> np.ndarray:
    return np.arange(rows * COLUMNS, dtype=np.float32).reshape(rows, COLUMNS)


def epoch(source, number: int = 0, start: int = 0) -> list[np.ndarray]:
    return [batch[0] for batch in source.epoch(number, start)]


def steps(kind: str, rows: int, size: int, ranks: int, static: bool, number: int = 0) -> tuple[list[np.ndarray], int]:
    """What the ranks consume in each step of an epoch, one rank after the other, and how much is dropped."""
    parts, dropped = [], set()
    for rank in range(ranks):
        if kind == "arrays":
            given, shuffle = (data(rows),), True
        else:
            given, shuffle = dataset(data(rows)), False
            if kind == "batched dataset":
                given = given.batch(size)
        graph = consumer(size if static else None)
        source = open_source(given, graph, None if static else size, shuffle, 3, Shard(rank, ranks))
        parts.append(epoch(source, number))
        dropped.add(source.dropped)
        if source.batches is not None:
            assert source.batches == len(parts[-1])
    assert len({len(part) for part in parts}) == 1, "every rank runs the same number of steps"
    assert all(len({len(p) for p in step}) == 1 for step in zip(*parts, strict=True)), "of the same size"
    (lost,) = dropped
    return [np.concatenate(step) for step in zip(*parts, strict=True)], lost


@pytest.mark.parametrize("kind", ["arrays", "dataset", "batched dataset"])
@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("rows", [12, 13, 17, 23, 24])
def test_ranks_take_the_steps_of_one_process(kind: str, ranks: int, rows: int):
    for number in (0, 1):
        one, lost = steps("arrays" if kind == "arrays" else "dataset", rows, 2 * ranks, 1, True, number)
        several, lost_by_several = steps(kind, rows, 2, ranks, True, number)
        assert lost == lost_by_several == rows % (2 * ranks)
        np.testing.assert_array_equal(np.stack(several), np.stack(one))


@pytest.mark.parametrize("kind", ["arrays", "dataset", "batched dataset"])
@pytest.mark.parametrize(("rows", "sizes", "dropped"), [(12, [6, 6], 0), (16, [6, 6, 3], 1), (13, [6, 6], 1)])
def test_the_rest_is_divided_where_graphs_take_any_number_of_rows(kind, rows, sizes, dropped):
    one = np.concatenate(steps("arrays" if kind == "arrays" else "dataset", rows, 6, 1, False)[0])
    several, lost = steps(kind, rows, 2, 3, False)
    assert [len(step) for step in several] == sizes
    assert lost == dropped
    np.testing.assert_array_equal(np.concatenate(several), one[: rows - dropped])


def test_starting_within_an_epoch():
    for given in ((data(12),), dataset(data(12))):
        source = open_source(given, consumer(2), None, True, 0, Shard(1, 2))
        np.testing.assert_array_equal(np.stack(epoch(source, 1, 2)), np.stack(epoch(source, 1))[2:])
        assert epoch(source, 1, 3) == []


def test_too_few_samples_for_all_ranks():
    with pytest.raises(RuntimeFailure, match=r"7 samples do not fill .* of 2 on each of 4 ranks: that takes 8"):
        open_source((data(7),), consumer(2), None, True, 0, Shard(0, 4))
    with pytest.raises(RuntimeFailure, match=r"3 samples do not fill .* on each of 4 ranks: that takes 4"):
        open_source((data(3),), consumer(None), 2, True, 0, Shard(0, 4))


def test_a_dataset_that_is_divided_already_is_taken_as_it_is():
    import mindspore.dataset as ds

    rows = [np.array(row) for row in data(8)]

    def sampled() -> ds.Dataset:
        return ds.GeneratorDataset([(r,) for r in rows], ["x"], sampler=ds.DistributedSampler(2, 1, shuffle=False))

    own = ds.GeneratorDataset([(r,) for r in rows], ["x"], shuffle=False, num_shards=2, shard_id=1)
    for given in (own, sampled(), sampled().batch(2)):
        source = open_source(given, consumer(2), None, True, 0, Shard(1, 2))
        np.testing.assert_array_equal(np.concatenate(epoch(source)), data(8)[1::2])


@pytest.mark.parametrize("seed", [None, 7])
def test_ranks_agree_on_the_order_of_a_shuffled_dataset(seed):
    import mindspore.dataset as ds
    from boost_compile.runtime.data.sources import UNSEEDED

    process, before = ds.config.get_seed(), UNSEEDED if seed is None else seed
    ds.config.set_seed(before)
    orders = []
    for rank in range(2):
        shuffled = ds.GeneratorDataset([(np.array(r),) for r in data(16)], ["x"], shuffle=True)
        source = open_source(shuffled, consumer(2), None, True, 5, Shard(rank, 2))
        orders.append([np.stack(epoch(source, number)) for number in range(2)])
    assert ds.config.get_seed() == before
    ds.config.set_seed(process)
    for first, second in zip(*orders, strict=True):
        np.testing.assert_array_equal(np.sort(np.concatenate([first, second]), axis=None), np.sort(data(16), axis=None))
    assert not np.array_equal(orders[0][0], orders[0][1]), "epochs differ"
