"""Accumulation is one step on the joined batch, or says that it is not: judged by native MindSpore on that batch."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn, ops

import boost_compile as bc
from tests import native
from tests.boundary import train
from tests.compare import assert_close
from tests.networks import CASES, Batch, names
from tests.networks.losses import CASES as LOSSES

Exported = Callable[[str], Path]
TOLERANCE = 1e-5


class DividesGradients(nn.Cell):
    """A sum, whose gradients the training cell divides by the tokens that count."""

    def __init__(self, network: nn.Cell, optimizer: nn.Cell):
        super().__init__(auto_prefix=False)
        self.network, self.optimizer = network, optimizer
        self.gradients = ms.value_and_grad(network, None, optimizer.parameters)

    def construct(self, ids: Tensor, labels: Tensor) -> Tensor:
        loss, gradients = self.gradients(ids, labels)
        count = (labels != -100).astype(ms.float32).sum()
        handed = ()
        for gradient in gradients:
            handed = handed + (gradient / count,)  # noqa: RUF005
        return ops.depend(loss, self.optimizer(handed))


class Tokens(nn.Cell):
    """A mean over the tokens that count, written in one of many ways."""

    def __init__(self, form: str):
        super().__init__()
        self.form = form
        self.table = nn.Embedding(13, 8)
        self.head = nn.Dense(8, 13)
        self.scale = Tensor(np.linspace(0.5, 2, 13).astype(np.float32))
        self.weighted = nn.CrossEntropyLoss(ignore_index=-100, weight=self.scale)
        self.smoothed = nn.CrossEntropyLoss(ignore_index=-100, label_smoothing=0.1)
        self.each = nn.SoftmaxCrossEntropyWithLogits(sparse=True)
        self.pair = ops.SoftmaxCrossEntropyWithLogits()

    def construct(self, ids: Tensor, labels: Tensor) -> Tensor:
        z, y = self.head(ops.tanh(self.table(ids))).reshape((-1, 13)), labels.reshape((-1,))
        mask = (y != -100).astype(ms.float32)
        known = ops.maximum(y, 0)
        form = self.form
        if form == "ignore_index":
            return ops.cross_entropy(z, y, ignore_index=-100)
        if form == "class weights":
            return self.weighted(z, y)
        if form == "smoothed":
            return self.smoothed(z, y)
        if form == "nll_loss":
            return ops.nll_loss(ops.log_softmax(z, -1), y, weight=self.scale, ignore_index=-100)
        if form == "square errors":
            return (((z - 1.0) ** 2).mean(-1) * mask).sum() / mask.sum()
        losses = self.each(z, known)
        if form == "quotient":
            return (mask * losses).sum() / mask.sum()
        if form == "epsilon":
            return (mask * losses).sum() / (mask.sum() + 1e-8)
        if form == "maximum":
            return (mask * losses).sum() / ops.maximum(mask.sum(), 1.0)
        if form == "clamp":
            return (mask * losses).sum() / ops.clamp(mask.sum(), min=1.0)
        if form == "where":
            return ops.where(y != -100, losses, ops.zeros_like(losses)).sum() / (y != -100).sum()
        if form == "div":
            return ops.div(ops.reduce_sum(mask * losses), ops.reduce_sum(mask))
        if form == "selected":
            return ops.masked_select(losses, y != -100).mean()
        if form == "one-hot":
            on, off = Tensor(1.0, ms.float32), Tensor(0.0, ms.float32)
            rows, _ = self.pair(z, ops.one_hot(known, 13, on, off))
            return (rows * mask).sum() / mask.sum()
        if form == "means":
            return (mask * losses).mean() / mask.mean()
        if form == "shares":
            return (losses * (mask / mask.sum())).sum()
        if form == "reciprocal":
            return (losses * mask).sum() * ops.reciprocal(mask.sum())
        if form == "guarded":
            count = mask.sum()
            return ops.where(count > 0, (losses * mask).sum() / ops.maximum(count, 1.0), Tensor(0.0, ms.float32))
        if form == "decayed":
            return (mask * losses).sum() / mask.sum() + 0.01 * (self.head.weight**2).sum()
        if form == "sum":
            return (mask * losses).sum()
        if form == "mean":
            return losses.mean()
        if form == "by its number":
            return losses.sum() / losses.shape[0]
        if form == "two counts":
            return (mask * losses).sum() / mask.sum() + 0.1 * (z**2).mean()
        if form == "twice the count":
            return (mask * losses).sum() / (2.0 * mask.sum())
        if form == "one more":
            return (mask * losses).sum() / (mask.sum() + 1.0)
        if form == "one more than twice":
            return (mask * losses).sum() / (2.0 * ops.maximum(mask.sum(), 3.0) + 1.0)
        if form == "four at least":
            return (mask * losses).sum() / ops.maximum(mask.sum(), 4.0)
        if form == "root of the count":
            return (mask * losses).sum() / ops.sqrt(mask.sum())
        if form == "centred":
            return (losses - losses.mean()).abs().mean()
        return (z @ z.T).mean()


COUNTED = (
    "ignore_index", "class weights", "smoothed", "nll_loss", "square errors", "quotient", "epsilon", "maximum", "clamp",
    "where", "div", "selected", "one-hot", "means", "shares", "reciprocal", "guarded", "decayed",
    "divided by the cell", "twice the count", "one more", "four at least", "one more than twice",
)  # fmt: skip


def ragged(*counts: int) -> list[Batch]:
    rng, found = np.random.default_rng(3), []
    for count in counts:
        ids, labels = (rng.integers(0, 13, (5, 5)).astype(np.int32) for _ in range(2))
        labels.reshape(-1)[rng.permutation(25)[count:]] = -100
        found.append((ids, labels))
    return found


def joined(batches: list[Batch]) -> Batch:
    return tuple(np.concatenate(arrays) for arrays in zip(*batches, strict=True))


def cell(form: str) -> tuple[nn.Cell, nn.Cell]:
    outside = form == "divided by the cell"
    net = Tokens("sum" if outside else form)
    rng = np.random.default_rng(1)
    for p in net.trainable_params():
        p.set_data(Tensor(rng.normal(0, 0.4, p.shape).astype(np.float32)))
    step = DividesGradients if outside else nn.TrainOneStepCell
    return net, step(net, nn.Momentum(net.trainable_params(), 0.5, 0.9)).set_train()


def by_the_batch(form: str, batches: list[Batch]) -> dict[str, np.ndarray]:
    net, step = cell(form)
    step(*map(Tensor, joined(batches)))
    return {p.name: p.asnumpy() for p in net.trainable_params()}


def by_micro_batches(form: str, batches: list[Batch], options: str = "") -> tuple[dict[str, np.ndarray], bc.Program]:
    _, step = cell(form)
    program = bc.compile(bc.capture(step, *batches[0]), f"gradient-accumulation{{steps={len(batches)}{options}}}")
    session = bc.Session(program, share=False)
    for batch in batches:
        session.step(*batch)
    return dict(session.state()), program


def distance(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> float:
    return max(float(np.abs(a[name] - np.asarray(b[name])).max()) for name in a)


@pytest.mark.parametrize("form", COUNTED)
def test_a_mean_over_tokens_is_that_of_the_joined_batch(form: str) -> None:
    """Ragged counts, and one micro-batch in which nothing counts (MindSpore's MaskedSelect cannot be empty)."""
    batches = ragged(23, 5, 11, 2) if form == "selected" else ragged(23, 5, 0, 11, 2)
    ours, program = by_micro_batches(form, batches, ",split=fused" if form in COUNTED[::4] else "")
    assert distance(by_the_batch(form, batches), ours) < TOLERANCE
    report = program.reports[-1]
    assert (report.options["reduction"], report.statistics["big batch"]) == ("weighted", "any sizes")


@pytest.mark.parametrize(
    ("form", "reduction", "sizes"),
    [("sum", "sum", "any sizes"), ("mean", "mean", "equal sizes only"), ("by its number", "mean", "equal sizes only")],
)
def test_sums_add_up_and_means_are_means(form: str, reduction: str, sizes: str) -> None:
    batches = ragged(23, 5, 11, 2)
    ours, program = by_micro_batches(form, batches)
    assert distance(by_the_batch(form, batches), ours) < TOLERANCE
    report = program.reports[-1]
    assert (report.options["reduction"], report.statistics["big batch"]) == (reduction, sizes)
    assumed = [m.reason for m in report.misses if m.reason.startswith("assumed")]
    assert bool(assumed) == (form == "by its number")


@pytest.mark.parametrize("form", ["two counts", "root of the count", "centred", "pairs"])
def test_what_is_not_the_big_batch_says_so(form: str) -> None:
    batches = ragged(23, 5, 11, 2)
    ours, program = by_micro_batches(form, batches)
    assert distance(by_the_batch(form, batches), ours) > TOLERANCE, "nothing to see"
    report = program.reports[-1]
    assert report.statistics["big batch"] == "never"
    assert any(miss.reason.startswith("not the big batch") for miss in report.misses)
    assert report.summary.endswith("; not one step on the joined batch")


def test_the_verifier_divides_as_the_loss_does() -> None:
    """Its reference takes the numbers beside the count from the options of the pass, and adds weights up by itself."""
    batches = ragged(23, 5)
    program = bc.compile(source := bc.capture(cell("one more")[1], *batches[0]), "gradient-accumulation{steps=2}")
    assert (program.reports[-1].options["offset"], bc.verify(source, program).verified) == (1.0, True)
    assert "offset=1.0" in program.pipeline
    wrong = dataclasses.replace(program, pipeline=program.pipeline.replace("offset=1.0", "offset=3.0"))
    assert not bc.verify(source, wrong).verified


def test_the_prover_divides_as_the_loss_does() -> None:
    batches = ragged(23, 5)
    program = bc.compile(source := bc.capture(cell("one more")[1], *batches[0]), "gradient-accumulation{steps=2}")
    assert bc.prove(source, program).proved
    report = program.reports[-1]
    said = dataclasses.replace(report, options={**report.options, "offset": 3.0})
    wrong = dataclasses.replace(program, reports=[*program.reports[:-1], said])
    assert not bc.prove(source, wrong).proved


def test_who_asks_for_a_mean_gets_it_and_is_told() -> None:
    batches = ragged(23, 5, 11, 2)
    ours, program = by_micro_batches("quotient", batches, ",reduction=mean")
    assert distance(by_the_batch("quotient", batches), ours) > 0.01
    report = program.reports[-1]
    assert report.statistics["big batch"] == "equal sizes only"
    assert any("reduction=mean was asked for" in miss.reason for miss in report.misses)


def test_labels_are_no_weights() -> None:
    with pytest.raises(bc.Error, match="labels or indices"):
        by_micro_batches("quotient", ragged(3, 4), ",reduction=weighted,weight=inputs1")


ROWS = {"cross_entropy_rows", "mse_rows"}
"""A loss for each sample: the native step returns no number."""
JUDGED = sorted(
    {case.name for case in LOSSES} - ROWS | {"gpt_tied_sgd", "lstm", "loop", "at_once", "regularized", "two_heads"}
)


@pytest.mark.parametrize("name", [n for n in JUDGED if n in names(runs_on_cpu=True)])
def test_the_verdict_on_the_zoo(exported: Exported, name: str) -> None:
    """Where it says the big batch, a cycle is the native step on it."""
    source = bc.load(str(exported(name)))
    data = CASES[name].cycles(1, 2)
    program = bc.compile(source, "gradient-accumulation{steps=2}")
    sizes = program.reports[-1].statistics["big batch"]
    assert sizes in ("any sizes", "equal sizes only", "never")
    if sizes == "never":
        assert any(miss.reason.startswith("not the big batch") for miss in program.reports[-1].misses)
        return
    [ours] = train(program, source, data)
    _, big = native.train_steps(name, [joined(cycle) for cycle in data])
    assert_close(ours.state, big, native.initial_state(name), 1e-4)


@pytest.mark.slow
def test_every_network_has_a_verdict(exported: Exported) -> None:
    for name in names(runs_on_cpu=True):
        try:
            program = bc.compile(bc.load(str(exported(name))), "gradient-accumulation{steps=2,carry=last}")
        except bc.Error:
            continue
        report = program.reports[-1]
        verdict = report.statistics["big batch"]
        assert verdict in ("any sizes", "equal sizes only", "never"), name
        assert (verdict != "never") or any(m.reason.startswith("not the big batch") for m in report.misses), name
