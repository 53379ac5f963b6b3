"""The program under test in MindSpore, run cycle by cycle from any state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...ir.core.program import Program
from ...runtime.training.result import StepResult
from ...runtime.training.session import Session
from .reference import Batch, Values


@dataclass(frozen=True)
class Ran:
    """One cycle: the result of each micro-batch, that of the last thing run, and the user's state after it."""

    steps: tuple[StepResult, ...]
    last: StepResult
    state: Values


class Subject:
    """``names`` is the user's state, by the names of the original; what passes added is the program's own."""

    def __init__(self, program: Program, names: Sequence[str], device: str = "CPU", beside: Subject | None = None):
        """``beside`` another one it runs on the same state, and each is to restart before it runs."""
        self.program = program
        self._session: Session = Session(program, device=device, beside=None if beside is None else beside._session)
        self._fresh: Values = self._session.state() if beside is None else beside._fresh
        self.names = [n for n in names if n in self._fresh]
        self.length = self._session.cycle_length

    @property
    def variant(self) -> int:
        return self._session.variant

    def restart(self, variant: int = 0) -> None:
        """Back to how the program was loaded; ``variant``: at a cycle that runs it."""
        state = dict(self._fresh)
        choice = self.program.schedule.choice
        if choice is not None:
            # Behind its sequence a program runs variant 0, which the sequence itself may lack.
            number = next((n for n in range(choice.cycles + 1) if choice.of_cycle(n) == variant), None)
            if number is None:
                raise LookupError(f"no cycle runs variant {variant}")
            state[choice.state] = np.array(number, state[choice.state].dtype).reshape(state[choice.state].shape)
        self._session.load_state(state)

    def load(self, state: Mapping[str, np.ndarray]) -> None:
        """Sets the user's state, or any other by name; what is not named goes on."""
        self._session.load_state({n: v for n, v in state.items() if n in self._fresh}, strict=False)

    def state(self) -> Values:
        """All state of the program."""
        return self._session.state()

    def cycle(self, batches: Sequence[Batch]) -> Ran:
        """Runs one cycle; one that has fewer micro-batches than the program's is ended early."""
        steps = tuple(self._session.step(*batch) for batch in batches)
        last = steps[-1]
        if not last.ended_cycle:
            ended = self._session.flush()
            assert ended is not None
            last = ended
        state = self._session.state()
        # Results are read now: what they were computed from is overwritten by the next cycle.
        for result in (*steps, last):
            _ = result.outputs
        return Ran(steps, last, {n: state[n] for n in self.names})

    def keep(self, own: Mapping[str, np.ndarray]) -> None:
        """Every restart begins with this of the program's own state."""
        self._fresh.update(own)
        self.restart()
