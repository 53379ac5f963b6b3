"""The learning rate that a session trains with, as far as its state says."""

from __future__ import annotations

from .trainee import Trainee

NAME, STEP = "learning_rate", "global_step"
"""How MindSpore's optimizers call their states; with groups of parameters, the rates' names have an ending."""


def learning_rates(session: Trainee) -> tuple[float, ...]:
    """The rates of the last optimizer step, the smallest first; empty where no state says so (a schedule that the
    graph computes). A rate that changes by step is a list of all, from which the step count takes one."""
    program = session.program
    named = [n for n in program.state if n.rpartition(".")[2].startswith(NAME) and program.state[n].dtype.is_float]
    if not named:
        return ()
    state = session.state([*named, *([STEP] if STEP in program.state else [])])
    step = int(state[STEP].reshape(-1)[0]) if STEP in state else 1
    rates = set()
    for name in named:
        values = state[name].reshape(-1)
        if len(values):
            rates.add(float(values[min(max(step - 1, 0), len(values) - 1)]))
    return tuple(sorted(rates))
