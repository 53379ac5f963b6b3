"""What is enabled: whose training steps are rewritten by what, and what became of them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any

from ...ir.core.errors import AnatomyError, Error, RuntimeFailure
from ...ir.core.program import Program, StateVariable
from ...ir.core.report import PassResult
from ...ir.core.wording import agreed, counted
from ..training.result import StepResult
from ..training.skipped import check_skipped
from .parameters import parameters_of
from .step import ONE_GRAPH, REPORTED, Compile, trained
from .update import Update

log = logging.getLogger("boost_compile")

_ENABLED: list[Enabled] = []


@dataclass(eq=False)
class TakenStep:
    """A training step that was rewritten. ``weights``: the Parameters that it trains, by name; ``program``: what the
    passes made of it; ``state``: the Parameters that it has beside those of the script, by name."""

    weights: Mapping[str, Any]
    program: Program
    state: dict[str, Any]
    inside: Mapping[str, str] = field(repr=False)
    """The name of each of these in the program."""
    results: tuple[str, ...] = field(repr=False)
    """The names of what a call returns."""

    def __str__(self) -> str:
        first = next(iter(self.weights))
        return f"the step that trains {counted(len(self.weights), 'weight')} ('{first}', …)"


class Enabled:
    """What :func:`.enable` returns, and a context manager: leaving the block is :meth:`disable`.

    ``steps`` holds the training steps that were rewritten, in the order in which MindSpore compiled them.
    """

    def __init__(
        self,
        passes: Compile,
        text: str,
        cell: Any,
        match: str,
        name: str,
        on_update: Callable[[StepResult], object] | None,
    ):
        self.compile, self.text, self.name, self.on_update = passes, text, name, on_update
        self.steps: list[TakenStep] = []
        self.cell, self.match = cell, match
        self.saved: Mapping[str, Any] | None = None

    def __enter__(self) -> Enabled:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.disable()
        if kind is None and not self.steps:
            raise RuntimeFailure(
                "the block of bc.enable ended, and MindSpore compiled no training step in it that was asked for.",
                python=ONE_GRAPH,
            )

    def __repr__(self) -> str:
        state = "on" if self in _ENABLED else "off"
        return f"<boost-compile {state}: {counted(self.steps_taken, 'step')} rewritten by '{self.text}'>"

    @property
    def steps_taken(self) -> int:
        """How many training steps were rewritten. One that MindSpore compiles again, for inputs of another shape,
        counts once."""
        return len(self.steps)

    @property
    def program(self) -> Program:
        """What the passes made of the step that was rewritten last, for ``bc.prove`` and views."""
        if not self.steps:
            raise RuntimeFailure("MindSpore has compiled no step since bc.enable.", python="Run the first step.")
        return self.steps[-1].program

    @property
    def reports(self) -> list[PassResult]:
        """What each pass did to that step."""
        return self.program.reports

    @property
    def state(self) -> dict[str, Any]:
        """The Parameters that rewritten steps have beside those of the script (accumulators, counts, scales), by name:
        to be read, set (``set_data``) and saved."""
        return {name: parameter for step in self.steps for name, parameter in step.state.items()}

    def append_to(self, checkpoint: Any) -> list[dict[str, Any]]:
        """What ``mindspore.save_checkpoint`` takes: the Parameters of a Cell, or a list of such entries, and
        :attr:`state`."""
        given = checkpoint
        if not isinstance(checkpoint, list):
            given = [{"name": p.name, "data": p} for p in checkpoint.get_parameters()]
        taken = {entry["name"] for entry in given}
        for name in self.state:
            if name in taken:
                raise RuntimeFailure(
                    f"the checkpoint holds '{name}' already, of another step.",
                    python="Give each a name: bc.enable(…, name='first').",
                )
        return [*given, *({"name": name, "data": parameter} for name, parameter in self.state.items())]

    def load(self, checkpoint: Mapping[str, Any]) -> None:
        """Sets :attr:`state` from what ``mindspore.load_checkpoint`` returned, also that of steps that MindSpore has
        still to compile. RuntimeFailure where it lacks one."""
        self.saved = checkpoint
        for step in self.steps:
            _start(step.state, checkpoint)

    def disable(self) -> None:
        """Leaves alone what MindSpore compiles from now on. What it has compiled stays rewritten."""
        if self in _ENABLED:
            _ENABLED.remove(self)
            if self.steps:
                n = len(self.steps)
                log.warning(
                    "%s that MindSpore has compiled %s rewritten", counted(n, "step"), agreed(n, "stays", "stay")
                )


def _ids(parameters: Iterable[Any]) -> set[int]:
    return {id(parameter) for parameter in parameters}


def active() -> list[Enabled]:
    """What is enabled now, in order."""
    return _ENABLED


def asks_for(enabled: Enabled, weights: Mapping[str, Any]) -> bool:
    """Whether a step that trains these is meant."""
    if enabled.match and not any(fnmatchcase(name, enabled.match) for name in weights):
        return False
    return enabled.cell is None or not _ids(parameters_of(enabled.cell)).isdisjoint(_ids(weights.values()))


def step_of(enabled: Enabled, weights: Mapping[str, Any]) -> TakenStep | None:
    """The step that trains these, if it was taken before."""
    ids = _ids(weights.values())
    return next((step for step in enabled.steps if _ids(step.weights.values()) == ids), None)


def make_state(enabled: Enabled, new: Mapping[str, StateVariable]) -> dict[str, Any]:
    """Parameters for the new state of a step that is not known yet, by the names that the user sees."""
    from ..engine.engine import new_parameter

    prefix = f"{enabled.name}." if enabled.name else ""
    prefix += f"step{len(enabled.steps) + 1}." if enabled.steps else ""
    made: dict[str, Any] = {}
    for name, variable in new.items():
        made[prefix + name] = new_parameter(replace(variable, name=prefix + name))
    if enabled.saved is not None:
        _start(made, enabled.saved)
    return made


def finish(enabled: Enabled, step: TakenStep, update: Update | None, result: Any) -> None:
    """Ends the window, where a call of ``step`` that returned ``result`` is its last: updates, if that is left to the
    host, and tells who wants to know."""
    schedule = step.program.schedule
    if not (update.is_due() if update else enabled.on_update or schedule.max_skipped is not None):
        return
    held = {inside: step.state[name] for inside, name in step.inside.items()}
    if update is None and schedule.count is not None and held[schedule.count].asnumpy().any():
        return
    raw = {name.removeprefix(REPORTED): p.asnumpy().copy() for name, p in held.items() if name.startswith(REPORTED)}
    returned = result if isinstance(result, tuple) else (result,)
    if len(returned) == len(step.results) and result is not None:  # a call that sinks data returns nothing
        raw |= dict(zip(step.results, returned, strict=True))
    raw |= update.run() if update else {}
    report = StepResult("step", raw, ended_cycle=True)
    if enabled.on_update is not None:
        enabled.on_update(report)
    check_skipped(schedule, report)


def _start(state: Mapping[str, Any], saved: Mapping[str, Any]) -> None:
    missing = [name for name in state if name not in saved]
    if missing:
        raise RuntimeFailure(
            f"the checkpoint lacks '{missing[0]}', which the rewritten step needs.",
            python="Save it by mindspore.save_checkpoint(enabled.append_to(cell), path).",
        )
    for name, parameter in state.items():
        parameter.set_data(saved[name])


def who_asks(
    program: Program, parameters: Mapping[str, Any], among: Sequence[Enabled]
) -> tuple[dict[str, Any], list[Enabled]]:
    """The Parameters that a graph trains, by name, and those ``among`` what is enabled that ask for it. Error where
    it updates what somebody asks for, and not from gradients that it holds."""
    try:
        weights = trained(program, parameters)
    except AnatomyError as error:
        if not any(asks_for(enabled, parameters) for enabled in among):
            return {}, []
        raise Error(f"this step cannot be rewritten: {error.message}", python=ONE_GRAPH) from error
    return weights, [enabled for enabled in among if weights and asks_for(enabled, weights)]
