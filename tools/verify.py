"""boost-verify: does a program train as its passes promise? Judged by running it beside the original."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from . import cli
from .command import Command, argument, option, parameters_of, place

if TYPE_CHECKING:
    from ..ir.core.program import Program
    from .verification.report import Verification


@dataclass(frozen=True, kw_only=True)
class Job:
    """The request: the options of boost-verify."""

    original: str = argument()
    program: str = argument()
    data: str | None = place("Micro-batches to run [random ones that fit the inputs].", metavar="FILE.npz")
    seed: int = option("For random micro-batches.", default=0)
    cycles: int = option("Cycles of different micro-batches.", type=click.IntRange(2), default=2)
    device: str = option("", type=click.Choice(["CPU", "GPU", "Ascend"], case_sensitive=False), default="CPU")
    bisect: bool = option("Find the guilty pass on failure [on].", "--bisect/--no-bisect", default=True)
    quick: bool = option("Leave out what takes long; the report says what.")
    store: bool = option("Write verification.json into a program directory [on].", "--store/--no-store", default=True)
    verbose: bool = option("Show each check, and why others do not apply.", "-v")
    as_json: bool = option("One JSON document on stdout instead of the report.", "--json")


@click.command("boost-verify", cls=Command, params=parameters_of(Job))
@click.version_option(package_name="boost-compile")
def command(**options: Any) -> None:
    """Runs ORIGINAL, a training graph, and PROGRAM, which was compiled from it, in MindSpore from the same state, and
    checks what the passes promise, property by property.

    Exit status: 0 verified, 1 a property failed or showed nothing, 2 bad input, 3 nothing was verified, since no update
    was compared."""
    verify(Job(**options))


def verify(job: Job) -> None:
    """Verifies and prints; exit status 1 where it does not hold, 3 where no update was compared."""
    from .original import read_original

    source, compiled = read_original(job.original), cli.read_program(job.program)
    check_made_from(source, compiled, job.program)
    if job.store:
        cli.check_storable(job.program, "verification.json", "boost-verify --no-store leaves that out.")

    from .verification.progress import progress
    from .verification.table import print_verification

    with progress("boost-verify") as shown:
        found = run(
            source, compiled, job.original, job.program, job.store, data=job.data, cycles=job.cycles, seed=job.seed,
            device=job.device, bisect=job.bisect, quick=job.quick, progress=shown,
        )  # fmt: skip
    if job.as_json:
        cli.print_json(found.to_json())
    else:
        print_verification(found, cli.console(), verbose=job.verbose)
    if not found.verified:
        raise click.exceptions.Exit(found.exit_status)


def check_made_from(source: Program, compiled: Program, path: str) -> None:
    """OptionError for a program that does not say how it was made, or an original that is one."""
    from ..ir.core.errors import OptionError
    from .original import check_original

    if len(source.graphs) != 1 or source.pipeline:
        raise OptionError("the original is compiled already: give the training graph that the program was made from")
    check_original(source, compiled)
    if not compiled.pipeline and compiled.state.keys() != source.state.keys():
        raise OptionError(
            f"{path} does not say by which passes it was made (a self-contained MindIR does not): give the program "
            "directory (.boost)"
        )


def run(source: Program, compiled: Program, original: str, program: str, store: bool, **options: Any) -> Verification:
    """Verifies, and notes the hashes of both files (where they are files) and, with ``store``, the result in a program
    directory. ``options`` are those of ``boost_compile.verify``."""
    from dataclasses import replace

    from .verification import table
    from .verification.hashes import hashes
    from .verification.verifier import verify  # MindSpore starts here

    found = verify(source, compiled, **options)
    found = replace(found, hashes=hashes(Path(original), Path(program), (table.FILE,)))
    if store and Path(program).is_dir():
        table.store(found, Path(program))
    return found


def main() -> None:
    cli.main(command)


if __name__ == "__main__":
    main()
