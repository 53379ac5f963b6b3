"""boost-run: trains a program, or a MindIR training graph, on data in a file."""

from __future__ import annotations

from . import interruption

if __name__ == "__main__" or interruption.is_command("boost-run"):
    interruption.listen("boost-run")  # before anything that takes time

import time
from functools import partial
from typing import Any

import click

from . import cli
from .command import Command, parameters_of
from .jobs import rank
from .training.job import Job


@click.command("boost-run", cls=Command, params=parameters_of(Job))
@click.version_option(package_name="boost-compile")
@click.pass_obj
def command(arguments: list[str], /, **options: Any) -> None:
    """Trains PROGRAM: a program directory (.boost), a MindIR training graph, or text (.ir, .txt).

    With --save, SIGTERM and ctrl-C end the training where it can be saved, with exit code 75: --resume goes on there. A
    second signal ends it at once.
    """
    from ..ir.analysis.training.trains import check_trains
    from ..ir.rewrite.evaluation import adapters_of, check_weights
    from .doctor.examination import certain_findings
    from .training.evaluation import evaluate_only
    from .training.ranks import schedule, train_in_ranks
    from .training.report import print_report
    from .training.resuming import outcome
    from .training.train import train

    if rank.role() == "MS_SCHED":
        schedule()
        return
    if options["check_device"] is not None:
        from .training.device import report_device

        report_device(options["check_device"], options["program"], as_json=options["as_json"])
        return
    if options["program"] is None:
        raise click.UsageError("Missing argument 'PROGRAM'.")
    job = Job(arguments=tuple(arguments), **options)
    interruption.ends_with(partial(outcome, job, time.time_ns()))
    job.check()
    program = cli.read_program(job.program)
    check_weights(program, job.weights)
    if job.save_adapter is not None or job.load_adapter is not None:
        adapters_of(program)
    if job.print_lowered and rank.role() is None:
        cli.print_lowered(program, job.device.lower(), ranks=job.ranks, seed=job.seed)
    if job.data is None:
        if job.evaluate is not None:
            evaluate_only(job, program)
        return
    check_trains(program)
    if not (program.pipeline or job.quiet or job.as_json) and rank.role() is None:  # else boost-compile has said it
        for finding in certain_findings(program):
            click.echo(f"Warning: {cli.safe(str(finding))}", err=True)
    apart = job.ranks > 1 and rank.role() is None
    document = train_in_ranks(job, program) if apart else train(job, program)
    if document is None:
        return
    if job.as_json:
        cli.print_json(document)
    elif not job.quiet:
        print_report(document)


def main() -> None:
    if rank.role() is None:
        cli.run(command)
    rank.run(command)


if __name__ == "__main__":
    main()
