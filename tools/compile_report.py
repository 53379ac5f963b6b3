"""The report of boost-compile."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..ir.core.program import Program
from ..ir.core.report import PassResult
from ..ir.core.wording import counted, print_bytes
from ..ir.formats.storage.program_json import schedule_document
from ..passes.framework.base import Pass
from ..passes.framework.pipeline import print_pipeline
from ..passes.framework.registry import find
from . import cli
from .tables import say


@dataclass(frozen=True, slots=True)
class Outcome:
    """``source`` and ``program``: before and after; ``passes`` as they were asked for (``asked``) or by default."""

    source: Program
    program: Program
    input: str
    output: str
    emit: str
    passes: Sequence[Pass]
    asked: bool
    seconds: dict[str, float]

    @property
    def reports(self) -> list[PassResult]:
        """The results of this run (a program that was compiled before brings its own)."""
        return self.program.reports[len(self.source.reports) :]

    @property
    def ran(self) -> list[Pass]:
        """The passes that ran, in order: those asked for, and those that they or the target need."""
        return [find(r.name)(**r.options) for r in self.reports]

    @property
    def as_asked(self) -> bool:
        """Whether what ran is what was asked for (but for the end, which a bisect limit cuts off)."""
        ran = [p.name for p in self.ran]
        return ran == [p.name for p in self.passes][: len(ran)]

    @property
    def pipeline(self) -> str:
        return print_pipeline(self.ran)


def to_json(outcome: Outcome) -> dict[str, Any]:
    """``boost-compile --json``."""
    program = outcome.program
    return {
        "input": outcome.input,
        "output": outcome.output,
        "emit": outcome.emit,
        "bytes": size_on_disk(outcome.output),
        "pipeline": outcome.pipeline,
        "default_pipeline": not outcome.asked,
        "target": program.target,
        "passes": [r.to_json() for r in outcome.reports],
        "graphs": {name: graph.total_nodes() for name, graph in program.graphs.items()},
        "source_graphs": {name: graph.total_nodes() for name, graph in outcome.source.graphs.items()},
        "schedule": schedule_json(program),
        "state": {"variables": len(program.state), "bytes": program.state_bytes},
        "seconds": outcome.seconds,
    }


def schedule_json(program: Program) -> dict[str, Any]:
    return {
        **schedule_document(program.schedule),
        "micro_batches": program.micro_batches(),
        "text": describe_schedule(program),
    }


def print_report(outcome: Outcome) -> None:
    """The report: on stdout, or on stderr if stdout carries the program."""
    out = cli.console(stderr=outcome.output == "-")
    if not outcome.asked:
        say(out, f"No passes given; ran the default clean-up: {cli.escape(outcome.pipeline)}")
    elif not outcome.as_asked:
        say(out, f"Passes as they ran: {cli.escape(outcome.pipeline)}")
    if outcome.reports:
        counts = ("matched", "changed", "missed", "ms")
        shown = cli.table("", "pass", *counts, "what", numbers=counts)
        for p, r in zip(outcome.ran, outcome.reports, strict=True):
            row = [str(n) for n in (r.matched, r.changed, len(r.misses))]
            shown.add_row(cli.escape(print_pipeline([p])), *row, f"{r.seconds * 1e3:.0f}", cli.escape(r.summary))
        out.print(shown)
    for r in outcome.reports:
        if r.misses:
            say(out, f"{r.name} left {counted(len(r.misses), 'site')} alone:", "yellow")
            for line in cli.folded([f"{m.site}: {m.reason}" for m in r.misses]):
                say(out, f"  {cli.escape(line)}")
        if not r.preserves:
            say(out, f"{r.name} changes training: results differ from the source's on purpose.", "yellow")
    for name, allowed in _matched_nothing(outcome):
        say(out, f"Warning: {name} matched nothing ({allowed}).", "yellow")
    _print_written(outcome, out)


def _print_written(outcome: Outcome, out: Any) -> None:
    program = outcome.program
    before = outcome.source.total_nodes()
    graphs = ", ".join(f"{name} {graph.total_nodes()}" for name, graph in program.graphs.items())
    state = program.state_bytes
    grown = state - outcome.source.state_bytes
    change = f" ({'+' if grown > 0 else '-'}{print_bytes(abs(grown))})" if grown else ""
    say(out, f"Nodes: {before} before; now {graphs}.  State: {print_bytes(state)}{change}.")
    say(out, f"Schedule: {cli.escape(describe_schedule(program))}")
    if outcome.output == "-":
        return
    size = print_bytes(size_on_disk(outcome.output))
    say(out, f"Wrote {cli.escape(outcome.output)} ({outcome.emit}, {size}).")
    quoted = shlex.quote(outcome.output)
    runs = f"boost-run {quoted} --data FILE.npz --epochs 1"
    out.print(f"Next: {cli.escape(f'boost-inspect {quoted}' if outcome.emit == 'text' else runs)}", soft_wrap=True)


def print_statistics(outcome: Outcome) -> None:
    """``--pass-statistics``, on stderr."""
    shown = cli.table("Pass statistics", "pass", "statistic", "value", numbers=("value",))
    for r in outcome.reports:
        statistics = {"matched": r.matched, "changed": r.changed, "missed": len(r.misses), **r.statistics}
        for i, (name, value) in enumerate(statistics.items()):
            number = str(len(value)) if isinstance(value, (list, tuple, dict)) else str(value)
            shown.add_row("" if i else cli.escape(r.name), cli.escape(name), cli.escape(number))
    cli.console(stderr=True).print(shown)


def print_times(outcome: Outcome) -> None:
    """``--time-passes``, on stderr."""
    total = sum(outcome.seconds.values()) or 1.0
    shown = cli.table("Time", "what", "ms", "%", numbers=("ms", "%"))

    def add(what: str, seconds: float) -> None:
        shown.add_row(what, f"{seconds * 1e3:.1f}", f"{100 * seconds / total:.0f}")

    for phase, seconds in outcome.seconds.items():
        add(phase, seconds)
        if phase.startswith("passes"):
            for r in outcome.reports:
                add(f"  {r.name}", r.seconds)
    add("total", total)
    cli.console(stderr=True).print(shown)


def describe_schedule(program: Program) -> str:
    """The schedule in words."""
    schedule = program.schedule
    choice = f"; each window runs {schedule.choice}" if schedule.choice else ""
    choice += f"; {schedule.search}" if schedule.search else ""
    if schedule.flush is None and len(schedule.cycle) == 1 and schedule.cycle[0].repeat == 1:
        return f"every micro-batch runs '{schedule.cycle[0].graph}' and is one optimizer step{choice}"
    runs: list[str] = []
    for entry in schedule.cycle:
        inputs = bool(program.graphs[entry.graph].inputs)
        each = "a micro-batch each" if entry.repeat > 1 else "a micro-batch"
        times = f" {entry.repeat} times" if entry.repeat > 1 else ""
        runs.append(f"'{entry.graph}'{times}" + (f" ({each})" if inputs else ""))
    words = f"a window of {program.micro_batches()} micro-batches is one optimizer step: {', then '.join(runs)}"
    return words + (f"; '{schedule.flush}' ends a short window" if schedule.flush else "") + choice


def size_on_disk(path: str) -> int:
    """Bytes of a file or of all files in a directory; 0 for stdout."""
    if path == "-":
        return 0
    if os.path.isdir(path):
        return sum(f.stat().st_size for f in Path(path).rglob("*") if f.is_file())
    return os.path.getsize(path)


def _matched_nothing(outcome: Outcome) -> list[tuple[str, str]]:
    """Each pass that matched nothing, and why that was no error."""
    cleanups = {p.name for p in outcome.passes if p.may_match_nothing}
    optional = {p.name for p in outcome.passes if p.optional}
    return [
        (r.name, "it is optional" if r.name in optional else "allowed by --allow-no-match")
        for r in outcome.reports
        if not r.matched and r.name not in cleanups
    ]
