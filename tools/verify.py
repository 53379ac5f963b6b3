"""boost-verify: does a program train as its passes promise? Judged by running it beside the original."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from . import cli
from .command import Command, Place

if TYPE_CHECKING:
    from ..ir.core.program import Program
    from .verification.report import Verification

FAILED = 1


@click.command("boost-verify", cls=Command)
@click.argument("original", type=Place())
@click.argument("program", type=Place())
@click.option(
    "--data", metavar="FILE.npz", type=Place(), help="Micro-batches to run [random ones that fit the inputs]."
)
@click.option("--seed", type=int, default=0, show_default=True, help="For random micro-batches.")
@click.option(
    "--cycles", type=click.IntRange(min=2), default=2, show_default=True, help="Cycles of different micro-batches."
)
@click.option(
    "--device", type=click.Choice(["CPU", "GPU", "Ascend"], case_sensitive=False), default="CPU", show_default=True
)
@click.option("--bisect/--no-bisect", default=True, help="Find the guilty pass on failure [on].")
@click.option("--quick", is_flag=True, help="Leave out what takes long; the report says what.")
@click.option("--store/--no-store", default=True, help="Write verification.json into a program directory [on].")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout instead of the report.")
@click.version_option(package_name="boost-compile")
def command(**options: Any) -> None:
    """Runs ORIGINAL, a training graph, and PROGRAM, which was compiled from it, in MindSpore from the same state, and
    checks what the passes promise, property by property.

    Exit status: 0 verified, 1 a property failed or nothing was shown, 2 bad input."""
    verify(Job(**options))


@dataclass(frozen=True, kw_only=True)
class Job:
    """What was asked for: the options of boost-verify."""

    original: str
    program: str
    data: str | None
    seed: int
    cycles: int
    device: str
    bisect: bool
    quick: bool
    store: bool
    as_json: bool


def verify(job: Job) -> None:
    """Verifies and prints; exit status :data:`FAILED` where it does not hold."""
    source, compiled = cli.read_program(job.original), cli.read_program(job.program)
    check_made_from(source, compiled, job.program)

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
        print_verification(found, cli.console())
    if not found.verified:
        raise click.exceptions.Exit(FAILED)


def check_made_from(source: Program, compiled: Program, path: str) -> None:
    """OptionError for a program that does not say how it was made, or an original that is one."""
    from ..ir.core.errors import OptionError

    if len(source.graphs) != 1 or source.pipeline:
        raise OptionError("the original is compiled already: give the training graph that the program was made from")
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
