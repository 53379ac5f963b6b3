"""Runs passes over a program: order, verification, timing, and what happens when something goes wrong."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, NoReturn

from ...ir.analysis.targets import torn, torn_apart
from ...ir.analysis.training.anatomy import anatomy
from ...ir.analysis.training.gradient_path import has_stage
from ...ir.analysis.training.stages import RANK_CLIP, STAGES
from ...ir.core.collector import paused_collector
from ...ir.core.errors import AnatomyError, Error, NotApplicable, OptionError, PassError, VerifyError, nearest
from ...ir.core.primitives import EVERYWHERE
from ...ir.core.program import Program
from ...ir.core.report import PassResult
from ...ir.core.wording import sentence
from ...ir.formats.storage.compiled import compiled_by, is_self_contained
from ...ir.rewrite.settle_gradients import settle_gradients
from .base import Pass
from .instrumentation import Instrumentation
from .pipeline import parse_pipeline, print_pipeline
from .registry import LEGALIZATION, REGISTRY, find, load_all
from .reproducer import write_reproducer

VERIFY = "BOOST_COMPILE_VERIFY_EACH"
"""The environment variable that has every pass verified as by ``verify_each``; tests set it."""


class NoMatchWarning(UserWarning):
    """A pass that was asked for matched nothing, and that was allowed, or the pass optional."""


class InternalError(Exception):
    """A pass crashed: a bug of the pass. ``reproducer`` is the file that repeats it (None if none could be written)."""

    reproducer: Path | None = None


class BrokenProgram(VerifyError):
    """A pass left a program that does not verify: a bug of the pass. ``reproducer`` as in :class:`InternalError`."""

    reproducer: Path | None = None


def compile_program(
    program: Program,
    passes: str | Sequence[Pass],
    *,
    verify_each: bool | None = None,
    allow_no_match: bool = False,
    instrumentation: Instrumentation | None = None,
    reproducer_directory: str | Path | None = ".",
    target: str | None = None,
) -> Program:
    """A copy of ``program`` after the passes (pipeline text or objects), run in :func:`canonical_order`.

    ``program`` itself is never changed. The result's ``reports`` holds one PassResult a pass, its ``pipeline`` the text
    of what ran. The program is verified before the first pass and after the last; in between it is seen that no effect
    was lost, which later passes would hide. Where that fails, or a pass does behind others, all run again and are
    verified one by one, to name the one that broke the program. With ``verify_each`` they are verified one by one at
    once, as they are where ``instrumentation`` looks at what each leaves; False verifies nothing. ``target`` ("cpu",
    "gpu", "ascend") says where the program is to run; without one that stays as the program has it, and only what a
    pass meets is checked against it.

    Raises OptionError for a pipeline that cannot be read, PassError if the named target lacks a kernel that nothing
    replaces, if a pass cannot handle the program, or if it matched nothing (for an optional pass, ``less-bn?``, and for
    all with ``allow_no_match`` a NoMatchWarning), VerifyError for a program that was broken from the start,
    BrokenProgram or InternalError for a pass with a bug (after writing a file to repeat it, unless
    ``reproducer_directory`` is None).
    """
    passes = in_stages(passes)
    _refuse_twice(passes)
    if verify_each is not False:
        from ...ir.verify.verifier import verify

        verify(program)
    _refuse_self_contained(program, passes)
    if target is not None:
        program = _for_target(program, target)
    _refuse_before_rank_clip(program, passes)
    program, again = reopened(program) if passes else (program, [])
    asked = {p.name for p in passes}
    ordered = canonical_order(_with_needs([*passes, *(p for p in again if p.name not in asked)], program))
    instrumentation = instrumentation or Instrumentation()
    _check_selection(instrumentation, ordered)
    if verify_each is None and (instrumentation.looks or os.environ.get(VERIFY)):
        verify_each = True
    run = partial(_run_all, program, ordered, instrumentation, allow_no_match)
    done: list[Pass] = []
    try:
        with paused_collector():
            current = run(done, verify_each, None if verify_each is None else reproducer_directory)
    except Exception as error:
        if verify_each is not None or (not done and isinstance(error, Error) and not isinstance(error, BrokenProgram)):
            raise
        run([], True, reproducer_directory)
        raise  # what happens once only
    legalized = next((p.options()["target"] or current.target for p in done if p.name == LEGALIZATION), target)
    if legalized is not None:
        REGISTRY[LEGALIZATION].check_target(current, legalized)  # what the passes put in, too, and not what they took
    if target is not None:
        for name, graph in current.graphs.items():
            for node, state in torn(graph, target):
                raise PassError(torn_apart(node, state, name))
    current.pipeline = _joined(current.pipeline, done)
    return current


def in_stages(passes: str | Sequence[Pass]) -> list[Pass]:
    """The passes, with the stages of one that has stages in its place. OptionError for what is none."""
    passes = parse_pipeline(passes) if isinstance(passes, str) else passes
    if not isinstance(passes, (list, tuple)) or not all(isinstance(p, Pass) for p in passes):
        raise OptionError(f"no list of passes: {passes!r} (give pipeline text, or a list of Pass objects)")
    found: list[Pass] = []
    for p in passes:
        stages = [find(name)(**options) for name, options in p.stages().items()]
        found += [stage.as_optional() for stage in stages] if p.optional else stages
        found += [] if stages else [p]
    return found


def _run_all(
    program: Program,
    passes: Sequence[Pass],
    instrumentation: Instrumentation,
    allow_no_match: bool,
    done: list[Pass],
    verify_each: bool | None,
    reproducer_directory: str | Path | None,
) -> Program:
    """A copy of ``program`` after the passes; those that have run are added to ``done``. ``verify_each`` and errors as
    for :func:`compile_program`."""
    current = program.copy()
    if len(current.graphs) == 1 and not all(p.may_match_nothing for p in passes):
        _settle_gradients(current)
    for number, p in enumerate(passes, 1):
        if not instrumentation.may_run(p, number):
            continue
        before = instrumentation.before(p, current)
        lenient = allow_no_match or p.optional
        try:
            p = p.settled(current)
            result = _run(p, current, lenient=lenient)
            if verify_each is not False:
                _verify_after(p, current, whole=verify_each or number == len(passes))
        except Exception as error:
            if isinstance(error, Error) and not isinstance(error, BrokenProgram):
                _add_context(error, p, done, compiled_by(program))
                raise
            _report_bug(error, p, program, done, passes[number - 1 :], reproducer_directory)
        current.reports.append(result)
        instrumentation.after(p, current, before)
        if not result.matched and not p.may_match_nothing:
            _matched_nothing(p, result, done, lenient)
        done.append(p)
    return current


def _settle_gradients(program: Program) -> None:
    """What passes find is a gradient in the eyes of all of them."""
    (graph,) = program.graphs.values()
    try:
        found = anatomy(graph)
    except AnatomyError:
        return  # who needs one says why there is none
    settle_gradients(found)


def _refuse_twice(passes: Sequence[Pass]) -> None:
    """What is put in last, and again by later compilations, is there once."""
    redone = [p.name for p in passes if p.redone]
    if twice := [name for name in redone if redone.count(name) > 1]:
        raise PassError(f"'{twice[0]}' is asked for twice: ask for it once, with all its options")


def _refuse_self_contained(program: Program, passes: Sequence[Pass]) -> None:
    """A whole schedule in one graph is no step any more: what passes look for stands in branches of it."""
    asked = next((p for p in passes if not p.may_match_nothing), None)
    if asked is not None and is_self_contained(program):
        raise PassError(
            f"the file was compiled already by {compiled_by(program)}, and written as one self-contained graph, which "
            f"{asked.name} cannot take apart: compile its original with all passes in one pipeline, or go on from the "
            "program directory (NAME.boost)"
        )


def _refuse_before_rank_clip(program: Program, passes: Sequence[Pass]) -> None:
    """Gradients that ranks have clipped were measured as they were then: nothing may change them any more."""
    earlier = next((p for p in passes if p.at_stage in ("accumulate", "unscale", "finite-check")), None)
    if earlier is not None and has_stage(program, RANK_CLIP):
        raise PassError(
            f"pass '{earlier.name}' changes gradients in front of an earlier clip-gradients{{each_rank=true}}, which "
            "has measured them: ask for both in one pipeline"
        )


def _for_target(program: Program, target: str) -> Program:
    if target not in EVERYWHERE:
        raise OptionError(f"no target '{target}': give one of {', '.join(sorted(EVERYWHERE))}")
    program = program.copy()
    program.target = target
    return program


def reopened(program: Program) -> tuple[Program, list[Pass]]:
    """A copy without what earlier compilations put in as the last thing, and the passes that would put it in again; the
    program itself where there is nothing of the kind."""
    if any(r.name not in REGISTRY for r in program.reports):
        load_all()
    options = {r.name: r.options for r in program.reports if r.name in REGISTRY and REGISTRY[r.name].redone}
    if not options:
        return program, []
    program = program.copy()
    again = [REGISTRY[name](**given) for name, given in options.items()]
    for p in reversed(again):
        p.undo(program)
    return program, again


def _with_needs(passes: Sequence[Pass], program: Program) -> list[Pass]:
    """The passes and what they need: other passes, and primitives that the target has."""
    brought: list[Pass] = []
    for p in (asked := list(passes)):
        present = {name for other in asked for name in (other.name, *other.serves)}
        added = [find(name)() for name in p.needs(program) if name not in present]
        asked.extend(added)
        brought.extend(added)
    legalization, target = REGISTRY[LEGALIZATION], program.target
    if all(p.name != LEGALIZATION for p in asked) and legalization.needed_for(program, target):
        options: dict[str, Any] = {"target": target}
        brought.append(legalization(**options))
    # In front of the clean-ups at the end, which would else not see what comes of them.
    at = _behind_last_change(passes)
    return [*passes[:at], *brought, *passes[at:]]


def _behind_last_change(passes: Sequence[Pass]) -> int:
    """The place after the last pass that is no clean-up."""
    return max((i + 1 for i, p in enumerate(passes) if not p.may_match_nothing), default=0)


def canonical_order(passes: Sequence[Pass]) -> list[Pass]:
    """Legalization first, for the others see what it makes; then early passes, late ones after all but clean-ups, and
    those that have a stage in the order of ``STAGES`` (ir/analysis/training/stages.py).

    The latter share out among themselves the places that they hold; a pass without a stage keeps its place. So
    ``clip,cse,accumulate,dce`` becomes ``accumulate,cse,clip,dce``.
    """
    staged = iter(sorted((p for p in passes if p.at_stage is not None), key=_stage))
    ordered = [p if p.at_stage is None else next(staged) for p in passes]
    early = sorted((p for p in ordered if p.early), key=lambda p: (p.name != LEGALIZATION, p.closing))
    # What is redone stands last: first what has no stage, which measures or changes nothing that the others put in.
    late = sorted((p for p in ordered if p.late), key=lambda p: (p.redone, p.redone and p.at_stage is not None))
    others = [p for p in ordered if not p.early and not p.late]
    at = _behind_last_change(others)
    return [*early, *others[:at], *late, *others[at:]]


def _stage(p: Pass) -> int:
    if p.at_stage not in STAGES:
        raise OptionError(f"pass '{p.name}' declares the stage '{p.at_stage}'{nearest(str(p.at_stage), list(STAGES))}")
    return STAGES.index(p.at_stage)


def _run(p: Pass, program: Program, *, lenient: bool) -> PassResult:
    if program.schedule.search is not None and not p.may_match_nothing and p.at_stage != "all-reduce":
        how = "they exclude each other" if p.late else "ask for both in one pipeline"
        raise PassError(f"the optimizer of this program is a line search, behind which '{p.name}' finds nothing: {how}")
    _set_editor(program, p.name)
    start = perf_counter()
    try:
        result = p.run(program)
    except NotApplicable as error:
        if not lenient:
            raise
        result = p.result()
        result.miss("the network", str(error))
    seconds = perf_counter() - start
    _set_editor(program, "")
    if not isinstance(result, PassResult):
        raise TypeError(f"pass '{p.name}' returned {type(result).__name__}, not a PassResult")
    result.seconds = seconds
    return result


def _set_editor(program: Program, name: str) -> None:
    for graph in program.graphs.values():
        for body in graph.all_graphs():
            body.editor = name


def _verify_after(p: Pass, program: Program, *, whole: bool) -> None:
    """BrokenProgram if ``program`` is not valid; unless ``whole``, if it has lost an effect."""
    from ...ir.verify.verifier import loses_effects, verify

    try:
        if whole or loses_effects(program):
            verify(program)
    except VerifyError as error:
        raise BrokenProgram(f"pass '{p.name}' broke the program: {error}") from error


def _joined(pipeline: str, done: Sequence[Pass]) -> str:
    # With all options: a default that changes some day must not change what the record means.
    return ",".join(filter(None, (pipeline, print_pipeline(done, all_options=True))))


def _add_context(error: Error, p: Pass, done: Sequence[Pass], earlier: str) -> None:
    """Says in which pass an error arose, and what had run before it; ``earlier``: in compilations before this one."""
    if earlier and "already" not in str(error):
        error.postscript += (
            f"\n  the program was compiled already by {earlier}: compile its original with all passes at once"
        )
    error.postscript += f"\n  in pass '{p.name}'{_already_run(done)}"


def _already_run(done: Sequence[Pass]) -> str:
    return f", after {print_pipeline(done)}" if done else ""


def _matched_nothing(p: Pass, result: PassResult, done: Sequence[Pass], allowed: bool) -> None:
    reasons = [f"{m.site}: {m.reason}" for m in result.misses[:3]]
    if len(result.misses) > len(reasons):
        reasons.append(f"and {len(result.misses) - len(reasons)} more")
    why = f" ({'; '.join(reasons)})" if reasons else ""
    message = f"pass '{p.name}' matched nothing{_already_run(done)}{why}"
    if not allowed:
        raise PassError(
            f"{sentence(message)} Leave it out, write '{p.name}?', or",
            python="allow it with allow_no_match=True",
            command="allow it with boost-compile --allow-no-match",
        )
    warnings.warn(message, NoMatchWarning, stacklevel=4)


def _report_bug(
    error: Exception,
    p: Pass,
    program: Program,
    done: Sequence[Pass],
    remaining: Sequence[Pass],
    directory: str | Path | None,
) -> NoReturn:
    broken = isinstance(error, BrokenProgram)
    what = str(error) if broken else f"pass '{p.name}' crashed: {type(error).__name__}: {error}"
    pipeline = print_pipeline(remaining)
    path = None
    if directory is not None:
        # Passes are functions of their input, so the program as it stood before this one is had by running the
        # earlier ones again: nothing needs to be kept for a crash that mostly does not happen.
        replayed = program.copy()
        for earlier in done:
            _run(earlier, replayed, lenient=True)
        replayed.pipeline = _joined(program.pipeline, done)
        path = write_reproducer(replayed, pipeline, what, Path(directory))
    where = f"\n  rerun with: boost-compile {path} --passes '{pipeline}'" if path else ""
    kind: type[BrokenProgram] | type[InternalError] = BrokenProgram if broken else InternalError
    failure = kind(f"{what}{_already_run(done)}{where}")
    failure.reproducer = path
    raise failure from error


def _check_selection(instrumentation: Instrumentation, passes: Sequence[Pass]) -> None:
    names = [p.name for p in passes]
    for name in sorted(instrumentation.selected_names() - set(names)):
        raise OptionError(f"cannot print the IR around pass '{name}': the pipeline has none{nearest(name, names)}")
    limit = instrumentation.opt_bisect_limit
    if limit is not None and limit < 0:
        raise OptionError(f"the bisect limit must be at least 0, not {limit}")
