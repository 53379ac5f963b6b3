"""One random program: exported, compiled, run, and compared with native training and by boost-verify.

What MindSpore refuses (to export, or to run for want of a kernel) and what a pass refuses with a reason of its own is
told apart from failure, and counted.
"""

from __future__ import annotations

import gc
import re
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from boost_compile.ir.core.errors import AnatomyError, Error, OptionError, PassError, RuntimeFailure
from boost_compile.ir.text import parse_program, print_program
from boost_compile.passes.legalize import Legalize
from boost_compile.tools.verification import report
from boost_compile.tools.verification.reference import Reference
from boost_compile.tools.verification.verifier import verify
from mindspore import nn

import boost_compile as bc
from tests import boundary, native
from tests.boundary import Seen
from tests.compare import assert_equal
from tests.loss_scale import train_scaled
from tests.networks import Batch, Case, build, export
from tests.reference import Cells, Cycle, Run, overflowing

from .agreement import agree, nearby
from .build import make_case
from .composition import ALONE, Composition, compose, regroups_sums, rounding_unit
from .outcome import FAILED, NOT_EXPORTED, NOT_FINITE, NOT_RUN, PASSED, REFUSED, SHOWS_NOTHING, Outcome
from .pipelines import name_of, option_of, split
from .plan import Plan

CYCLES = 3
SAME_MASKS = 5
"""Steps in which MindSpore's Dropout on CPU draws the same for the same seed; then they depend on how it found, by
measuring, that a kernel is best shared among threads (docs/mindir.md)."""
T = TypeVar("T")


class Stop(Exception):
    """The judge has seen enough."""

    def __init__(self, status: str, stage: str, message: str) -> None:
        super().__init__(message)
        self.status, self.stage, self.message = status, stage, message


class Training:
    """What programs of one training cell are compared with: exported and compiled once, for any number of pipelines."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.cell = replace(plan, pipeline=(), calls=())
        self.case = make_case(plan)
        self.folder = folder
        self.references: dict[Any, Reference] = {}
        self._cells: dict[tuple[bool, frozenset[str]], Cells] = {}

    @cached_property
    def original(self) -> bc.Program:
        build(self.case)
        try:
            path = export(self.case, self.folder)
        except Exception as error:
            raise Stop(NOT_EXPORTED, "export", str(error)) from error
        try:
            return bc.load(str(path))
        except AnatomyError as error:
            raise Stop(REFUSED, "load", str(error)) from error

    def cells_of(self, case: Case, centralized: frozenset[str]) -> Cells:
        """Of this case; those of another are made for it alone, and those that draw masks, from a generator that would
        go on from where the last training left it."""
        if case.network is not self.case.network or any(layer.op == "dropout" for layer in self.cell.network.layers):
            return Cells(case, centralized)
        key = (case.wrap is nn.TrainOneStepCell, centralized)
        if key not in self._cells:
            self._cells[key] = Cells(case, centralized)
        return self._cells[key]


def judge(plan: Plan, training: Training, verifying: bool = True) -> Outcome:
    """Without `verifying`, only what no native training can judge goes to boost-verify."""
    start = time.perf_counter()
    outcome = Outcome(PASSED)
    try:
        _Judge(plan, training, outcome).run(verifying)
    except Stop as stop:
        outcome.status, outcome.stage, outcome.message = stop.status, stop.stage, stop.message
    except AssertionError as error:
        outcome.status, outcome.stage, outcome.message = FAILED, "comparison", str(error)
    except Exception:
        outcome.status, outcome.stage, outcome.message = FAILED, "crash", traceback.format_exc()
    gc.collect()
    outcome.seconds = time.perf_counter() - start
    return outcome


def train_natively(plan: Plan) -> Outcome:
    """As many steps of the training cell itself as the judge may take, without this project."""
    try:
        case = make_case(plan)
        native.train_steps(case, case.batches(20))
    except Exception as error:
        return Outcome(NOT_RUN, "native", str(error))
    return Outcome(PASSED)


class _Judge:
    def __init__(self, plan: Plan, training: Training, outcome: Outcome) -> None:
        self.plan, self.training, self.outcome = plan, training, outcome
        self.case = training.case

    def run(self, verifying: bool) -> None:
        self.original = self.training.original
        self.passes = self._compile()
        self.cycles = self.case.cycles(CYCLES, int(option_of(self.passes, "gradient-accumulation", "steps", "1")))
        judged = self._natively()
        if verifying or not judged:
            self._verified()

    # -- compilation -------------------------------------------------------------------------------------------

    def _compile(self) -> list[str]:
        """Compiles with what is left of the pipeline without the passes that refuse and say why; returns the passes."""
        pieces, calls = list(self.plan.pipeline), list(self.plan.calls)
        while True:
            program, at = self.original, 0
            try:
                for number in calls:
                    program = bc.compile(program, ",".join(pieces[at : at + number]))
                    at += number
                if Legalize.needed_for(program, "cpu"):
                    program = bc.compile(program, "legalize{target=cpu}")
                break
            except AnatomyError as error:
                raise Stop(REFUSED, "compile", str(error)) from error
            except (PassError, OptionError) as error:
                found = re.search(r"pass '([a-z-]+)'", str(error))
                guilty = [p for p in pieces if found and any(name_of(part) == found[1] for part in split(p))]
                if not guilty:
                    raise Stop(FAILED, "compile", f"a refusal that names no pass: {error}") from error
                self.outcome.refusals[guilty[0]] = str(error)
                pieces.remove(guilty[0])
                calls = [len(pieces)] if pieces else []
        text = print_program(program)
        assert print_program(parse_program(text)) == text, "its text reads as another program"
        # What is judged comes from a file.
        path = str(self.training.folder / "program.boost")
        program.save(path)
        self.program = bc.load(path)
        return [part for piece in pieces for part in split(piece)]

    # -- native training ---------------------------------------------------------------------------------------

    def _natively(self) -> bool:
        """Whether there is a native training to compare with: of the cell itself, bit for bit, where no pass changes
        a thing, or composed of MindSpore's parts."""
        draws = any(layer.op == "dropout" for layer in self.plan.network.layers)
        if draws and sum(map(len, self.cycles)) > SAME_MASKS:
            return False
        changing = {name_of(p) for p in self.passes} - ALONE
        cell = self.plan.cell.name
        if not changing and cell != "loss_scale" and not regroups_sums(self.original, self.passes):
            losses, state = self._of_mindspore(
                lambda case: native.train_steps(case, [cycle[0] for cycle in self.cycles]), self.case
            )
            self._finite(losses, state)
            ours = self._train()
            np.testing.assert_array_equal([seen.losses[0] for seen in ours], np.float32(losses))
            assert_equal(ours[-1].state, {n: state[n] for n in ours[-1].state})
            self._judged("the training cell", True)
            return True
        case, unit = self.case, rounding_unit(self.plan)
        found: Composition | None
        if cell == "loss_scale":
            if changing - {"gradient-accumulation"} or self._reduction() != "mean":
                return False

            def scaled(seed: int) -> Run:
                return _scaled(nearby(case, unit, seed), self.cycles)

            found = Composition("MindSpore's loss scale manager", scaled, False)
        elif cell == "clipped":
            return False
        else:
            case = case if cell == "sens" else replace(case, wrap=nn.TrainOneStepCell)
            found = compose(self.plan, case, self.passes, self.program, self.cycles, self.training.cells_of)
            if found is None:
                return False
            if found.checked:
                # The gate of a cell goes by the loss of the last micro-batch, and is taken in the reference.
                at = 0 if cell == "gated" else -1
                self.cycles[1][at] = self._overflowing(self.cycles[1][at])
        run = self._of_mindspore(found.train, 0)
        if all(cycle.skipped for cycle in run.cycles):
            raise Stop(NOT_FINITE, "native", "every cycle overflows")
        # What overflows (in the second cycle) may leave infinities in the statistics of BatchNorms.
        self._finite(run.cycles[0].losses, {} if found.checked else run.cycles[-1].state)
        equal = agree(self._train(), run, self.original, found.train)
        self._judged(found.judge, equal)
        return True

    def _reduction(self) -> str:
        return option_of(self.passes, "gradient-accumulation", "reduction", "mean")

    def _of_mindspore(self, function: Callable[[T], Any], argument: T) -> Any:
        try:
            return function(argument)
        except Exception as error:
            raise Stop(NOT_RUN, "native", str(error)) from error

    def _overflowing(self, batch: Batch) -> Batch:
        """Where a floating input is one of the network's: the loss may have others."""
        return overflowing(batch) if any(x.kind == "float" for x in self.plan.network.inputs) else batch

    def _finite(self, losses: Any, state: Any) -> None:
        if not np.isfinite(losses).all():
            raise Stop(NOT_FINITE, "native", "a loss is not finite")
        if not all(np.isfinite(v).all() for v in state.values() if v.dtype.kind == "f"):
            raise Stop(NOT_FINITE, "native", "the state is not finite")

    # -- ours --------------------------------------------------------------------------------------------------

    def _train(self) -> list[Seen]:
        try:
            return boundary.train_in(bc.Session(self.program), self.original, self.cycles)
        except RuntimeFailure as error:
            raise Stop(FAILED, "run", str(error)) from error

    def _judged(self, judge: str, bit_equal: bool) -> None:
        self.outcome.judges.append(judge)
        self.outcome.bit_equal = bit_equal

    def _verified(self) -> None:
        """By boost-verify, on the same kind of data."""
        batches = self.case.batches(2 * CYCLES, seed=2)
        try:
            references = self.training.references
            found = verify(self.original, self.program, data=batches, bisect=False, references=references)
        except RuntimeFailure as error:
            raise Stop(SHOWS_NOTHING, "verify", str(error)) from error
        except Error as error:
            raise Stop(REFUSED, "verify", str(error)) from error
        failures = [f"{r.name}: {r.detail} {r.deviation}" for r in found.failures]
        if failures:
            raise Stop(FAILED, "verify", "; ".join(failures))
        # Whether a gradient reaches a limit is the data's matter: updates that were compared are judged all the same.
        if not found.verified and (found.unmatched or found.result("different micro-batches").status != report.PASSED):
            raise Stop(SHOWS_NOTHING, "verify", str(found.unmatched or "vacuous"))
        self.outcome.judges.append("boost-verify")


def _scaled(case: Case, cycles: list[list[Batch]]) -> Run:
    """Of tests/loss_scale.py, in the form of tests/reference.py; the scale is the one after the step, as reported."""
    run = train_scaled(case, cycles)
    done = [
        Cycle(losses, scale, skipped, skipped, None, None, state)
        for losses, scale, skipped, state in zip(run.losses, run.scales, run.skipped, run.states, strict=True)
    ]
    return Run(run.initial, done, {})
