"""Weighted accumulation: micro-batches of different numbers of valid tokens are one big batch with a masked mean."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import boost_compile as bc
from tests import native, reference
from tests.boundary import check, train
from tests.compare import assert_close
from tests.networks import CASES, Batch

Exported = Callable[[str], Path]

MASK = {"token_cross_entropy_masked": "inputs2", "sample_weights_adam": "inputs2", "token_count": "mask"}
"""The input that holds the weights, by network."""
JOINED = 1e-4
"""One big batch adds the same terms in another order."""


def weighted(steps: int, weight: str, split: str = "apply") -> str:
    return f"gradient-accumulation{{steps={steps},reduction=weighted,weight={weight},split={split}}}"


def count(batch: Batch) -> float:
    return float(batch[2].sum())


def joined(cycle: list[Batch]) -> Batch:
    return tuple(np.concatenate(arrays) for arrays in zip(*cycle, strict=True))


@pytest.mark.parametrize("split", ["apply", "fused"])
@pytest.mark.parametrize("name", ["token_cross_entropy_masked", "sample_weights_adam"])
def test_a_cycle_is_one_big_batch_with_a_masked_mean(exported: Exported, name: str, split: str) -> None:
    source = bc.load(str(exported(name)))
    data = CASES[name].cycles(3, 4)
    assert len({count(batch) for batch in data[0]}) > 1
    ours = train(bc.compile(source, weighted(4, MASK[name], split)), source, data)
    run = reference.train(name, data, weight=count)
    check(ours, run, source)
    _, big = native.train_steps(name, [joined(cycle) for cycle in data])
    assert_close(ours[-1].state, big, run.initial, JOINED, run.noise())


@pytest.mark.parametrize("split", ["apply", "fused"])
@pytest.mark.parametrize("kind", ["input", "output", "scalar", "tensor"])
def test_the_weight_by_the_name_of_an_input_an_output_or_a_node(exported: Exported, kind: str, split: str) -> None:
    source = bc.load(str(exported("token_count")))
    step = source.graphs["step"]
    if kind == "input":
        weight = step.inputs[2].name
    elif kind == "output":
        weight = step.outputs[1]
    else:
        ops = {"scalar": ("SumExt", "ReduceSum"), "tensor": ("Reshape",)}[kind]
        weight = next(node.name for node in step if node.op.name in ops and node.operand(0) is step.inputs[2])
    data = CASES["token_count"].cycles(2, 4)
    ours = train(bc.compile(source, weighted(4, weight, split)), source, data)
    run = reference.train("token_cross_entropy_masked", data, weight=count)
    check(ours, run, source)


@pytest.mark.parametrize("split", ["apply", "fused"])
def test_a_micro_batch_without_any_token(exported: Exported, split: str) -> None:
    """Its mean is 0/0; dropped, the others are still one big batch with a masked mean."""
    name = "token_cross_entropy_masked"
    source = bc.load(str(exported(name)))
    data = [list(cycle) for cycle in CASES[name].cycles(2, 4)]
    data[0][2] = (*data[0][2][:2], np.zeros_like(data[0][2][2]))
    pipeline = f"{weighted(4, MASK[name], split)},overflow-check{{policy=skip-micro}}"
    ours = train(bc.compile(source, pipeline), source, data)
    run = reference.train(name, data, weight=count, overflow="skip-micro")
    _, big = native.train_steps(name, [joined(cycle) for cycle in data])
    assert_close(ours[-1].state, big, run.initial, JOINED, run.noise())


def test_a_weight_that_is_not_there_is_named(exported: Exported) -> None:
    source = bc.load(str(exported("token_cross_entropy_masked")))
    with pytest.raises(bc.Error, match="no_such_value"):
        bc.compile(source, weighted(4, "no_such_value"))
    with pytest.raises(bc.Error, match="weight"):
        bc.compile(source, "gradient-accumulation{steps=4,reduction=weighted}")
