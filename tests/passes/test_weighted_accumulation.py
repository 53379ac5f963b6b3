"""Weighted accumulation: micro-batches of different numbers of valid tokens are one big batch with a masked mean."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import boost_compile as bc
from tests import native, reference
from tests.boundary import assert_same_training, check, train, train_file
from tests.compare import assert_close, assert_equal, compare
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


@pytest.mark.parametrize("name", ["token_cross_entropy_masked", "sample_weights_adam"])
def test_a_mean_of_means_is_not(exported: Exported, name: str) -> None:
    """What the comparison with one big batch must be able to see."""
    source = bc.load(str(exported(name)))
    data = CASES[name].cycles(1, 4)
    [ours] = train(bc.compile(source, "gradient-accumulation{steps=4,reduction=mean}"), source, data)
    _, big = native.train_steps(name, [joined(cycle) for cycle in data])
    run = reference.train(name, data, weight=count)
    assert compare(ours.state, big, run.initial, run.noise()).worst.error > 10 * JOINED


def test_weights_in_proportion_are_repetitions(exported: Exported) -> None:
    """A mask of 6 tokens beside one of 2: the first micro-batch counts three times."""
    name = "token_cross_entropy_masked"
    source = bc.load(str(exported(name)))
    [[one, other]] = CASES[name].cycles(1, 2)
    masks = np.zeros_like(one[2]), np.zeros_like(one[2])
    masks[0].flat[:6], masks[1].flat[:2] = 1, 1
    one, other = (*one[:2], masks[0]), (*other[:2], masks[1])
    [ours] = train(bc.compile(source, weighted(2, MASK[name])), source, [[one, other]])
    [again] = train(
        bc.compile(source, "gradient-accumulation{steps=4,reduction=mean}"), source, [[one, one, one, other]]
    )
    assert_close(ours.state, again.state, native.initial_state(name), 1e-5)


@pytest.mark.parametrize("split", ["apply", "fused"])
def test_equal_weights_are_the_plain_mean(exported: Exported, split: str) -> None:
    """Weights of one power of two: not a bit differs."""
    source = bc.load(str(exported("sample_weights_adam")))
    data = [[(x, y, np.full_like(w, 0.5)) for x, y, w in cycle] for cycle in CASES["sample_weights_adam"].cycles(2, 4)]
    ours = train(bc.compile(source, weighted(4, "inputs2", split)), source, data)
    plain = train(bc.compile(source, f"gradient-accumulation{{steps=4,split={split}}}"), source, data)
    for a, b in zip(ours, plain, strict=True):
        assert_equal(a.state, b.state)


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
@pytest.mark.parametrize("length", [1, 3])
def test_a_short_cycle_divides_by_its_own_weights(exported: Exported, split: str, length: int) -> None:
    name = "token_cross_entropy_masked"
    source = bc.load(str(exported(name)))
    full, short = CASES[name].cycles(2, 4)
    data = [full, short[:length], full]
    ours = train(bc.compile(source, weighted(4, MASK[name], split)), source, data)
    check(ours, reference.train(name, data, weight=count), source)


@pytest.mark.parametrize("split", ["apply", "fused"])
@pytest.mark.parametrize("policy", ["skip-cycle", "skip-micro"])
def test_a_dropped_micro_batch_does_not_count(exported: Exported, split: str, policy: str) -> None:
    name = "sample_weights_adam"
    source = bc.load(str(exported(name)))
    data = [list(cycle) for cycle in CASES[name].cycles(4, 3)]
    data[1][0], data[2][2] = reference.overflowing(data[1][0]), reference.overflowing(data[2][2])
    pipeline = f"{weighted(3, MASK[name], split)},overflow-check{{policy={policy}}}"
    ours = train(bc.compile(source, pipeline), source, data)
    check(ours, reference.train(name, data, weight=count, overflow=policy), source)


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


@pytest.mark.parametrize("split", ["apply", "fused"])
def test_the_file_alone_weighs_as_the_session_does(exported: Exported, tmp_path: Path, split: str) -> None:
    name = "sample_weights_adam"
    source = bc.load(str(exported(name)))
    program = bc.compile(source, weighted(3, MASK[name], split))
    program.save(str(tmp_path / "whole.mindir"))
    data = CASES[name].cycles(3, 3)
    assert_same_training(train_file(tmp_path / "whole.mindir", source, data), train(program, source, data))


def test_a_weight_that_is_not_there_is_named(exported: Exported) -> None:
    source = bc.load(str(exported("token_cross_entropy_masked")))
    with pytest.raises(bc.Error, match="no_such_value"):
        bc.compile(source, weighted(4, "no_such_value"))
    with pytest.raises(bc.Error, match="weight"):
        bc.compile(source, "gradient-accumulation{steps=4,reduction=weighted}")
