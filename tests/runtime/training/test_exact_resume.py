"""Training that is stopped at any micro-batch and goes on ends with the bits of one that was not stopped: every
combination of passes, dropout, and a search that needs the cycle's micro-batches again."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from boost_compile.ir.core.errors import RuntimeFailure
from boost_compile.runtime.engine.draws import NOTE
from boost_compile.runtime.state.checkpoint import DamagedState

import boost_compile as bc
from tests.boundary import slow
from tests.exact_resume import check_resume, error_of
from tests.networks import CASES

STEPS = 10
"""Micro-batches in two epochs of five; cycles of three run across their border, and one is left to flush."""
ACCUMULATE = "gradient-accumulation{steps=3}"
PIPELINES = {
    "plain": "dead-code-elimination",
    "accumulation": ACCUMULATE,
    "boundary": f"{ACCUMULATE},loss-scale{{mode=dynamic,window=2}},overflow-check,clip-gradients,"
    "tag-gradient-centralization,lower-gradient-centralization",
    "freeze": f"{ACCUMULATE},gradient-freeze{{groups=2,total_steps=4}}",
    "fused": "gradient-accumulation{steps=3,split=fused},effect-chain-minimization",
    "group scale": "gradient-accumulation{steps=3},group-loss-scale{groups=2,window=2}",
    "skipped": f"{ACCUMULATE},loss-scale{{mode=dynamic,window=2}},overflow-check{{policy=skip-micro}}",
    "head": f"{ACCUMULATE},normalised-head",
    "parameter groups": f"{ACCUMULATE},parameter-groups{{match=[*bias],lr_factor=0.5}}",
    "data-parallel": f"{ACCUMULATE},data-parallel,common-subexpression-elimination",
    "adasum": f"{ACCUMULATE},adasum",
}


def data_of(name: str, micro_batches: int, overflowing: bool = False) -> tuple[np.ndarray, ...]:
    """One row of numbers has an infinity, if asked for."""
    batches = CASES[name].batches(micro_batches)
    if overflowing and batches[1][0].dtype.kind == "f":
        batches[1][0].reshape(-1)[0] = np.inf
    return tuple(np.concatenate(arrays) for arrays in zip(*batches, strict=True))


SMALL = ("mlp", "dropout")
"""Networks that are tried at every micro-batch; the others within a cycle, at its end, and at the end of an epoch."""
ORDINARY = {("dropout", "boundary"), ("dropout", "freeze"), ("lenet_bn", "accumulation")}
CASES_OF_ALL = [(n, p) for n in (*SMALL, "lenet_bn", "lstm", "gpt") for p in PIPELINES]


@pytest.mark.parametrize(
    ("name", "pipeline"), [c if c in ORDINARY else pytest.param(*c, marks=pytest.mark.slow) for c in CASES_OF_ALL]
)
def test_bits_of_an_uninterrupted_training(name: str, pipeline: str, exported, tmp_path: Path):
    program = bc.compile(bc.load(exported(name)), PIPELINES[pipeline])
    steps: Iterable[int] = range(1, STEPS + 1) if name in SMALL else (1, 3, 5, 8)
    if (name, pipeline) in ORDINARY:
        steps = (2, 7)
    check_resume(program, data_of(name, STEPS // 2, pipeline == "skipped"), tmp_path, steps)


@pytest.mark.parametrize("suffix", [".safetensors", *slow(".ckpt")])
def test_a_search_takes_the_micro_batches_of_its_cycle_along(suffix: str, exported, tmp_path: Path):
    source = bc.load(exported("dropout"))
    basis = tmp_path / "basis.npy"
    columns = sum(v.type.size for v in source.state.values() if v.role == "weight" and v.trainable)
    rows = np.linalg.qr(np.random.default_rng(0).standard_normal((columns, 3)))[0].T
    np.save(basis, rows.astype(np.float32))
    program = bc.compile(source, f"{ACCUMULATE},dim-reduce{{basis={basis},n_components=3}}")
    check_resume(program, data_of("dropout", STEPS // 2), tmp_path, (1, 3, 5), suffix=suffix)


def test_random_numbers_of_another_seed_are_refused(exported, tmp_path: Path):
    program, data = bc.load(exported("dropout")), data_of("dropout", 2)
    first, other, unseeded = bc.Session(program, seed=1), bc.Session(program, seed=2), bc.Session(program)
    first.fit(data)
    first.save(tmp_path / "x.safetensors")
    for session in (other, unseeded):
        session.load_state(tmp_path / "x.safetensors")
    with pytest.raises(RuntimeFailure, match="from the seed 1 then and from 2 now"):
        other.fit(data, epochs=2, resume=True)
    unseeded.fit(data, epochs=2, resume=True)  # as MindSpore draws: it warns
    assert NOTE in first_notes(tmp_path / "x.safetensors")


def first_notes(path: Path) -> dict[str, str]:
    from safetensors import safe_open

    with safe_open(path, framework="numpy") as file:
        return dict(file.metadata())


@pytest.mark.parametrize("suffix", [".safetensors", ".ckpt"])
def test_a_flipped_bit_in_a_state_file_is_found(suffix: str, exported, tmp_path: Path):
    session = bc.Session(bc.load(exported("dropout")), seed=1)
    session.fit(data_of("dropout", 2))
    path = tmp_path / f"x{suffix}"
    session.save(path)
    whole, kept = path.read_bytes(), session.state()
    path.chmod(0o600)
    accepted = []
    for at in range(0, len(whole), max(1, len(whole) // 150)):
        damaged = bytearray(whole)
        damaged[at] ^= 1 << at % 8
        path.write_bytes(damaged)
        error = error_of(lambda: session.load_state(path))
        if error is not None:
            assert isinstance(error, DamagedState), error
            assert str(error).startswith(str(path))
        else:
            accepted.append(at)
            assert all(np.array_equal(kept[name], value) for name, value in session.state().items())
    assert len(accepted) <= 2, accepted  # the padding of a header
