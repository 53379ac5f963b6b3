"""The judge of exact resume: a training that is saved at a micro-batch and goes on in a new session, against one that
runs through."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from boost_compile.ir.core.program import Program
from boost_compile.runtime.training.callback import Callback

import boost_compile as bc


class SavedAt(Callback):
    """Saves at some micro-batches, each to a file of its own, and keeps all losses."""

    def __init__(self, folder: Path, steps: Iterable[int] = (), suffix: str = ".safetensors"):
        self.folder, self.steps, self.suffix = folder, set(steps), suffix
        self.losses: list[Any] = []

    def path(self, step: int) -> Path:
        return self.folder / f"at-{step}{self.suffix}"

    def on_step(self, session, number, result):
        self.losses.append(np.array(result.loss))
        if number in self.steps:
            session.save(self.path(number))


def check_resume(
    program: Program, data: Any, folder: Path, steps: Iterable[int], epochs: int = 2, suffix: str = ".safetensors"
) -> None:
    """Every loss after each of ``steps``, and every state at the end, in every bit."""
    saving = SavedAt(folder, steps, suffix)
    whole = bc.Session(program, seed=5)
    whole.fit(data, epochs=epochs, seed=1, callbacks=[saving], allow_nonfinite=True)
    ended = whole.state()
    assert any(not np.array_equal(value, program.state[name].initial) for name, value in ended.items()), "it trained"
    for step in saving.steps:
        again, seen = bc.Session(program, seed=5), SavedAt(folder)
        again.load_state(saving.path(step))
        again.fit(data, epochs=epochs, seed=1, resume=True, callbacks=[seen], allow_nonfinite=True)
        assert_same_bits(dict(enumerate(seen.losses)), dict(enumerate(saving.losses[step:])), f"losses after {step}")
        assert_same_bits(again.state(), ended, f"state after {step}")


def error_of(call: Callable[[], object]) -> bc.Error | None:
    try:
        call()
    except bc.Error as error:
        return error
    return None


def assert_same_bits(found: dict[Any, Any], expected: dict[Any, Any], what: str) -> None:
    assert list(found) == list(expected), what
    for name, array in expected.items():
        same = np.ascontiguousarray(found[name]).tobytes() == np.ascontiguousarray(array).tobytes()
        assert same, f"{what}: {name}\n{found[name]}\n{array}"
