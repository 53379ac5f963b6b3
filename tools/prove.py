"""boost-prove: does a program train as its original, whatever the data? Proved, without running either."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from . import cli
from .command import Command, argument, option, parameters_of, place

if TYPE_CHECKING:
    from ..ir.core.program import Program
    from .proof.run import Proved

UNPROVED = 1


@dataclass(frozen=True, kw_only=True)
class Job:
    """The request: the options of boost-prove."""

    original: str = argument()
    program: str = argument()
    check: str | None = place("See that this certificate is of these files, and prove them again.", metavar="FILE")
    store: bool = option("Write proof.json into a program directory [on].", "--store/--no-store", default=True)
    verbose: bool = option("Show the verdict of each state and result.", "-v")
    as_json: bool = option("One JSON document on stdout instead of the report.", "--json")


@click.command("boost-prove", cls=Command, params=parameters_of(Job))
@click.version_option(package_name="boost-compile")
def command(**options: Any) -> None:
    """Proves that PROGRAM, which was compiled from the training graph ORIGINAL, trains as it does: for all inputs and
    states, and cycles of any length. Nothing is run, and no pass is trusted.

    Exit status: 0 proved, 1 not proved, 2 bad input."""
    run(Job(**options))


def run(job: Job) -> None:
    """Proves and prints; exit status :data:`UNPROVED` where something is not proved."""
    from .original import read_original

    cli.pause_collector()
    source, compiled = read_original(job.original), cli.read_program(job.program)
    if job.check is not None:
        return _check(job, source, compiled)
    if job.store:
        cli.check_storable(job.program, "proof.json", "boost-prove --no-store leaves that out.")
    found = prove(source, compiled, job.original, job.program, store=job.store)
    if job.as_json:
        from .proof.run import to_json

        cli.print_json(to_json(found))
    else:
        from .proof.table import print_proof

        print_proof(found, cli.console(), verbose=job.verbose)
    if not found.proved:
        raise click.exceptions.Exit(UNPROVED)
    return None


def prove(source: Program, compiled: Program, original: str, program: str, *, store: bool) -> Proved:
    """Proves, notes the hashes of both files, and with ``store`` leaves the certificate in a program directory. One
    that does not hold any more goes."""
    from .proof import certificate
    from .proof.run import prove as proof_of

    found = proof_of(source, compiled)
    found.hashes = certificate.hashes_of(Path(original), Path(program))
    if store and Path(program).is_dir():
        if found.proved:
            certificate.store(found, Path(program) / certificate.FILE)
        else:
            (Path(program) / certificate.FILE).unlink(missing_ok=True)
    return found


def _check(job: Job, source: Program, compiled: Program) -> None:
    from .proof.certificate import check
    from .proof.run import prove as proof_of

    assert job.check is not None
    verdicts = check(Path(job.check), Path(job.original), Path(job.program))
    if not (found := proof_of(source, compiled)):
        click.echo(cli.safe(f"The certificate does not hold. {found.verdict()}"), err=True)
        raise click.exceptions.Exit(UNPROVED)
    if job.as_json:
        cli.print_json({"holds": True, "verdicts": verdicts})
    else:
        click.echo(f"The certificate holds: {verdicts} verdicts of these files, proved again.")


def main() -> None:
    cli.main(command)


if __name__ == "__main__":
    main()
