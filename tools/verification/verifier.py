"""boost-verify as a function: a program against the training graph that it was made from."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from time import perf_counter
from typing import Any

import numpy as np

from ...ir.core.errors import AnatomyError, Error, OptionError, RuntimeFailure
from ...ir.core.program import Program
from ...ir.core.types import TensorType
from ...ir.core.wording import agreed, counted, sentence
from ...passes.framework.base import Pass
from ...passes.framework.manager import InternalError, compile_program
from ...passes.framework.pipeline import print_pipeline
from ...passes.step.dynamic_loss_scale import scales_its_loss
from ..judged import changed_by, trained_as, with_reports
from ..original import check_original
from .changes import stages_of
from .context import Context, LeftOut, NotApplicable, Property
from .data import GIVE_DATA, file_batches, given_batches, random_batches
from .derivative import Derivative, HandedGradients
from .deterministic import without_dropout
from .half_precision import GradientsInHalfPrecision, is_mixed, overflows
from .native import OTHERWISE, UntouchedFile
from .overflow import Overflow
from .probe import weighing_inputs
from .progress import Progress
from .promises import ADASUM, CLIP, GROUPS, LOSS_SCALE, MIXED, REPLACE, Promises, read_promises
from .reference import Batch, Reference
from .repeating import beyond_doubt
from .replaced import ReplacedOptimizers
from .report import FAILED, LEFT_OUT, NOT_APPLICABLE, Guilty, Result, Verification
from .scaled import HalfReference, ScaledReference, Scaling
from .situations import (
    Clipping,
    DifferentMicroBatches,
    FrozenWeights,
    Losses,
    LossScaleLinearity,
    OtherWeights,
    ShortCycle,
)
from .stated import Stated, always_updating, state
from .states import InitialState, RandomDraws

log = logging.getLogger("boost_compile")


PROPERTIES: tuple[Callable[[], Property], ...] = (
    UntouchedFile, InitialState, DifferentMicroBatches, ShortCycle, Losses, RandomDraws, OtherWeights, FrozenWeights,
    LossScaleLinearity, Clipping, Overflow, HandedGradients, Derivative, GradientsInHalfPrecision, ReplacedOptimizers,
)  # fmt: skip
"""In the order in which they are checked and shown."""


def verify(
    original: Program,
    program: Program,
    *,
    data: str | Sequence[Batch] | None = None,
    cycles: int = 2,
    seed: int = 0,
    device: str = "CPU",
    bisect: bool = True,
    quick: bool = False,
    references: dict[Any, Reference] | None = None,
    progress: Progress | None = None,
) -> Verification:
    """Runs both in MindSpore from the same state and checks what the passes in ``program.pipeline`` promise.

    ``data`` is an .npz file or a list of micro-batches (one array for each input); without it they are random, by
    ``seed``. ``cycles``: how many optimizer steps of different micro-batches are compared, two at least. On failure
    ``bisect`` finds the guilty pass. ``quick`` leaves out properties that take long; the report names them.
    ``progress`` is told what is being checked. ``references`` keeps what was compiled of the original for the next call
    with the same original.

    Raises RuntimeFailure where the data shows nothing (losses that are not finite, no gradients): give other data.
    """
    if cycles < 2:
        raise OptionError(
            f"{counted(cycles, 'cycle')} {agreed(cycles, 'is', 'are')} too few: two at least, since what a cycle "
            "leaves behind shows in the next one"
        )
    start = perf_counter()
    check_original(original, program)
    if len(original.graphs) != 1 or not program.pipeline.startswith(original.pipeline):
        raise OptionError("the original is compiled already: give the training graph that the program was made from")
    promises = read_promises(program)
    references = {} if references is None else references
    job = _Job(original, data, cycles, seed, device, references, quick, progress or Progress())
    results, notes = job.check(program, promises)
    by = {r.name: r for r in results}
    off = {name: r.detail for name, r in by.items() if r.status == NOT_APPLICABLE}
    unmatched = off.get(DifferentMicroBatches.name, "")
    if REPLACE in job.made:
        unmatched = unmatched or off.get(ReplacedOptimizers.name, "")
    guilty = None
    names = [r.name for r in results if r.failed and r.name != UntouchedFile.name]
    told = [OTHERWISE] if by[UntouchedFile.name].failed else [off[n] for n in (UntouchedFile.name,) if n in off]
    if (promises.having(CLIP) or promises.having(REPLACE)) and HandedGradients.name in off and not unmatched:
        told.append(off[HandedGradients.name])
    if Derivative.name in off and {*job.made} - {MIXED, REPLACE} and not unmatched:
        told.append(f"the changed network's gradients were not compared: {off[Derivative.name]}")
    if promises.having(ADASUM):
        told.append("in one process, where adasum leaves an update as it is")
    if bisect and names and promises.passes:
        guilty = _find_guilty(original, promises.passes, lambda prefix: job.failures(prefix, names))
    return Verification(
        tuple(results),
        program.pipeline,
        seed,
        cycles,
        data if isinstance(data, str) else "random" if data is None else "given",
        guilty,
        tuple(notes),
        versions(),
        {},
        perf_counter() - start,
        unmatched,
        "; ".join(told),
        trained_as(with_reports(program)) + changed_by([p.name for p in promises.passes if not p.preserves]),
    )


@dataclass
class _Job:
    """The verification of one program, and of the prefixes of its pipeline."""

    original: Program
    data: str | Sequence[Batch] | None
    cycles: int
    seed: int
    device: str
    references: dict[Any, Reference]
    quick: bool
    progress: Progress
    made: tuple[str, ...] = ()

    def check(
        self, program: Program, promises: Promises, only: Iterable[str] = (), prefix: str = ""
    ) -> tuple[list[Result], list[str]]:
        """The results of all properties, or of ``only`` those, up to the first failure; and notes."""
        stated = state(self.original, program, promises)
        _same_inputs(stated.program, program)
        try:
            reference = self._reference(stated, program, promises)
            inside = reference.probe.closed or promises.having(GROUPS)
            if inside and always_updating(stated.program) is not stated.program:
                stated = state(self.original, program, promises, opened=True)
                reference = self._reference(stated, program, promises, opened=True)
        except AnatomyError as error:
            raise error.behind("this original cannot serve as a reference: ", AnatomyError) from error
        base, self.made = stated.program, stated.made
        count = max(program.micro_batches(), 1) * self.cycles
        batches, notes = self._batches(base, promises, count)
        _check_data(reference, batches)
        context = Context(
            self.original, stated, program, promises, reference, batches, self.cycles, self.device, self.seed,
            quick=self.quick, progress=self.progress,
        )  # fmt: skip
        results = []
        for number, make in enumerate(PROPERTIES, 1):
            p = make()
            if not only or p.name in only:
                self.progress.begin(f"{prefix}{p.name}, {number} of {len(PROPERTIES)}")
                results.append(_checked(p, context))
                if only and results[-1].failed:
                    break
        return results, notes

    def failures(self, program: Program, names: Sequence[str]) -> list[Result]:
        """The first of the named properties that fails."""
        if not program.pipeline:
            return []
        promises = read_promises(program)
        prefix = f"passes up to {promises.passes[-1].name} alone, "
        results, _ = self.check(program, promises, names, prefix)
        return [r for r in results if r.failed]

    def _reference(self, stated: Stated, program: Program, promises: Promises, *, opened: bool = False) -> Reference:
        base = stated.program
        stages = stages_of(promises)
        given = (promises.weight, stages, promises.unscale)
        scaled = any(p.name == LOSS_SCALE for p in promises.passes)
        key = (print_pipeline(promises.network), base.pipeline, scaled, opened, *given)
        if key not in self.references:
            if is_mixed(promises):
                exact = state(self.original, program, promises, leave_out=MIXED).program
                self.references[key] = ScaledReference(base, exact, self.device, *given)
            else:
                half = scaled and _is_half(base)
                self.references[key] = (HalfReference if half else Reference)(
                    without_dropout(base), self.device, *given
                )
        reference = self.references[key]
        if isinstance(reference, Scaling):
            reference.scale_by(1.0)
        return reference

    def _batches(self, base: Program, promises: Promises, count: int) -> tuple[list[Batch], list[str]]:
        ((_, graph),) = base.graphs.items()
        if isinstance(self.data, str):
            return file_batches(self.data, graph, count), []
        if self.data is not None:
            return given_batches(self.data, count), []
        positive = [] if promises.weight is None else weighing_inputs(graph, promises.weight[0])
        return random_batches(graph, count, self.seed, positive)


def _find_guilty(original: Program, passes: Sequence[Pass], check: Callable[[Program], Sequence[Result]]) -> Guilty:
    """The first pass after which a property fails that held before: compiles the original with longer and longer
    beginnings of the pipeline. ``check`` gives the failures of a program."""
    for number, p in enumerate(passes, 1):
        try:
            program = compile_program(original, list(passes[:number]), allow_no_match=True, reproducer_directory=None)
        except (Error, InternalError) as error:
            note = f"compiling anew fails: {error}"
            return Guilty(p.name, number, len(passes), Result("compilation", FAILED, note), note)
        failures = check(program)
        if failures:
            return Guilty(p.name, number, len(passes), failures[0])
    return Guilty("", 0, len(passes), Result("", ""), "the same pipeline, compiled now, makes a program that is right")


def _checked(p: Property, context: Context) -> Result:
    start = perf_counter()
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)
        try:
            result = p.check(context)
            if result.failed and p.runs_original:
                context.progress.detail("the original again")
                result = beyond_doubt(result, context.reference, context.batches)
        except NotApplicable as reason:
            result = p.result(NOT_APPLICABLE, str(reason))
        except LeftOut:
            result = p.result(LEFT_OUT)
        except RuntimeFailure as error:
            result = p.failed(f"it does not run: {error.at_command()}")
    return replace(result, seconds=perf_counter() - start)


def _is_half(program: Program) -> bool:
    """Whether a program that does not scale its loss by itself computes in half precision."""
    types = (n.type for n in program.all_nodes() if isinstance(n.type, TensorType))
    return any(t.dtype.value == "float16" for t in types) and not scales_its_loss(program)


def _same_inputs(base: Program, program: Program) -> None:
    ((_, graph),) = base.graphs.items()
    wanted = [str(v.type) for v in graph.inputs]
    for name, ours in program.graphs.items():
        if ours.inputs and [str(v.type) for v in ours.inputs] != wanted:
            taken = ", ".join(str(v.type) for v in ours.inputs)
            raise OptionError(
                f"graph '{name}' of the program takes {taken}, the original {', '.join(wanted)}: not made from it"
            )


def _check_data(reference: Reference, batches: Sequence[Batch]) -> None:
    """RuntimeFailure where this data would show nothing."""

    def not_finite(what: str, found: str) -> RuntimeFailure:
        if isinstance(reference, ScaledReference) and _are_finite(reference.exact, batches[:2]):
            return RuntimeFailure(overflows(what))
        return RuntimeFailure(f"with this data the original's {found}: {GIVE_DATA}")

    try:
        with np.errstate(all="ignore"):
            micros = [reference.micro(reference.initial, batch) for batch in batches[:2]]
    except RuntimeFailure as error:
        raise RuntimeFailure(
            f"the original does not run on this data: {sentence(error.at_command())} If the data is to blame, "
            f"{GIVE_DATA}"
        ) from error
    for micro in micros:
        for name, value in micro.outputs.items():
            if isinstance(value, float) and not np.isfinite(value):
                raise not_finite(f"the result '{name}'", f"{name} is {value}")
    if not all(m.finite for m in micros):
        _, after = reference.step(reference.initial, batches[0])
        # A training cell with a check of its own may begin with a loss scale that is too large.
        bad = [w for w in reference.probe.weights if not np.isfinite(after[w]).all()]
        if bad:
            raise not_finite(f"the gradient of '{bad[0]}'", "gradients are not finite")
    if not any(np.any(g) for m in micros for g in m.gradients.values()):
        raise RuntimeFailure(f"vacuous: with this data every gradient of the original is zero: {GIVE_DATA}")
    different = any(a.tobytes() != b.tobytes() for a, b in zip(batches[0], batches[1], strict=True))
    alike = all(micros[0].gradients[n].tobytes() == micros[1].gradients[n].tobytes() for n in micros[0].gradients)
    if not different or alike:
        raise RuntimeFailure(f"vacuous: different micro-batches of this data give the same gradients: {GIVE_DATA}")


def _are_finite(reference: Reference, batches: Sequence[Batch]) -> bool:
    """Whether the results and gradients of all micro-batches are."""
    with np.errstate(all="ignore"):
        micros = [reference.micro(reference.initial, batch) for batch in batches]
    numbers = [v for m in micros for v in m.outputs.values() if isinstance(v, float)]
    return all(m.finite for m in micros) and bool(np.isfinite(numbers).all())


def versions() -> Mapping[str, str]:
    """The versions that a result depends on."""
    found = {}
    for name in ("boost-compile", "mindspore", "numpy"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "?"
    return found
