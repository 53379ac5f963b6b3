"""boost-reduce: the smallest program that still shows a failure."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..ir.core.wording import counted
from . import cli
from .command import Command, Pipeline, argument, option, parameters_of, place
from .outputs import check_output, check_suffix

if TYPE_CHECKING:
    from .reduction.checks import Check
    from .reduction.reducer import Progress, Reduction

_RERUN = re.compile(r"^// rerun with: boost-compile \S+ --passes '([^']*)'", re.MULTILINE)
"""The header of a crash's reproducer (passes/framework/reproducer.py)."""
_EVERY = 50
"""Where standard error is no terminal, progress is one line for so many tests."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """The request: the options of boost-reduce."""

    file: str = argument()
    pipeline: str | None = option(
        "The passes that fail [those a crash file names].", "-p", "--passes", metavar="PIPELINE", type=Pipeline()
    )
    verify: bool = option("The failure is a property that boost-verify finds wrong.")
    command_: str | None = option("The failure is how this command ends; {} is the file.", "--check", metavar="CMD")
    match: str = option("Only a failure whose message holds this text.", default="", metavar="TEXT")
    timeout: float | None = option("Longest time of one --check or --verify.", metavar="SECONDS")
    max_tests: int = option("Stop after so many tests.", type=click.IntRange(1), default=1000)
    output: str | None = place("Where the text goes [NAME-reduced.ir].", "-o")
    force: bool = option("Replace FILE of -o though it is of another kind.")
    quiet: bool = option("No progress.", "-q")

    @property
    def target(self) -> str:
        """Where the text goes."""
        return self.output or f"{Path(self.file).stem}-reduced.ir"


@click.command("boost-reduce", cls=Command, params=parameters_of(Job))
@click.version_option(package_name="boost-compile")
def command(**options: Any) -> None:
    """Shrinks FILE, which shows a failure, to a minimal case: leaves out passes, graphs, outputs, effects, scopes and
    nodes, and makes shapes smaller, while the failure stays the same. Writes text that a test can hold; FILE itself is
    not touched.

    \b
    --passes            an error of a pass: the same one, raised at the same place
    --passes --verify   a compiled program that trains wrong: the same property
    --check CMD         any command: the same exit status as for FILE itself

    Exit status: 0 reduced, and what was written was checked to fail; 2 bad input, or FILE does not fail."""
    reduce_file(Job(**options))


def reduce_file(job: Job) -> None:
    """Reduces the job's file, and says what came of it."""
    from ..ir.formats.storage.suffixes import TEXT_SUFFIXES
    from .reduction.reducer import reduce

    check_output(job.target, (job.file,), force=job.force)
    check_suffix(job.target, dict.fromkeys(TEXT_SUFFIXES, "text"))
    program = cli.read_program(job.file)
    check = _check(job)
    before = program.total_nodes()
    found = reduce(program, check, max_tests=job.max_tests, progress=_nothing if job.quiet else _progress())
    text = _text(found, check, job.target)
    _confirm(text, found, check)
    cli.write_text(text, job.target)
    after = found.program.total_nodes()
    click.echo(
        f"{job.target}: {after} of {counted(before, 'node')}, "
        f"{counted(found.tests, 'test')}{'; stopped' if found.spent else ''}"
    )
    click.echo(f"  {found.failure}\n  rerun with: {check.rerun(job.target, found.passes)}")


def _check(job: Job) -> Check:
    from ..ir.core.errors import OptionError
    from ..passes.framework.pipeline import parse_pipeline
    from .reduction.checks import Command, Crash, Unverified

    if job.command_ is not None:
        if job.pipeline or job.verify:
            raise OptionError("--check is a failure of its own: leave out --passes and --verify")
        return Command(job.command_, job.match, job.timeout)
    pipeline = _named_in(job.file) if job.pipeline is None else job.pipeline
    if pipeline is None:
        raise OptionError("say what fails: --passes PIPELINE, with --verify or without, or --check CMD")
    passes = parse_pipeline(pipeline)
    return Unverified(passes, job.timeout) if job.verify else Crash(passes, job.match)


def _named_in(file: str) -> str | None:
    """The passes that the head of a crash file names."""
    from ..ir.formats.storage.suffixes import form_of

    if form_of(file) != "text":
        return None
    found = _RERUN.search(Path(file).read_text(encoding="utf-8", errors="replace")[:4096])
    return found[1] if found else None


def _text(found: Reduction, check: Check, target: str) -> str:
    from ..ir.text import print_program

    head = [f"reduced: {found.failure}", f"rerun with: {check.rerun(target, found.passes)}"]
    return "".join(f"// {line}\n" for line in head) + print_program(found.program)


def _confirm(text: str, found: Reduction, check: Check) -> None:
    """The written file must fail, not only the program in memory."""
    from ..ir.core.errors import OptionError
    from ..ir.text import parse_program

    if not check.shows(found.failure, parse_program(text), found.passes):
        raise OptionError("the reduced program does not fail when it is tried again: the failure comes and goes")


def _nothing(what: str, tests: int, nodes: int, state: int) -> None:
    pass


def _progress() -> Progress:
    """One line that is written over on a terminal; elsewhere a line now and then."""
    terminal = sys.stderr.isatty()

    def show(what: str, tests: int, nodes: int, state: int) -> None:
        line = f"{counted(tests, 'test')}: {counted(nodes, 'node')}, {counted(state, 'state variable')} left ({what})"
        if terminal:
            sys.stderr.write(f"\r\x1b[K{line}")
        elif tests % _EVERY == 0:
            sys.stderr.write(f"{line}\n")
        sys.stderr.flush()

    return show


def main() -> None:
    cli.main(command)


if __name__ == "__main__":
    main()
