"""boost-run: trains a program, or a MindIR training graph, on data in a file."""

from __future__ import annotations

from . import interruption

if __name__ == "__main__" or interruption.is_command("boost-run"):
    interruption.listen("boost-run")  # before anything that takes time

import time
from functools import partial
from typing import Any

import click

from ..runtime.evaluation.metrics import METRICS
from . import cli
from .command import Command, Place
from .jobs import rank


@click.command("boost-run", cls=Command)
@click.argument("program", type=Place())
@click.option(
    "--data",
    metavar="FILE.npz",
    type=Place(),
    help="Arrays by input name (or in order), a row a sample.",
)
@click.option("--epochs", type=click.IntRange(min=1), default=1, show_default=True, help="Passes over the data.")
@click.option(
    "--device", type=click.Choice(["CPU", "GPU", "Ascend"], case_sensitive=False), default="CPU", show_default=True
)
@click.option("--batch-size", type=click.IntRange(min=1), metavar="B", help="Samples a micro-batch [as exported].")
@click.option("--seed", type=int, default=0, show_default=True, help="For the order of samples and random primitives.")
@click.option("--shuffle/--no-shuffle", default=True, help="Reorder the samples each epoch [on].")
@click.option("--load", metavar="PATH", type=Place(), help="Start from this state (.safetensors, .ckpt or .npz).")
@click.option("--partial", is_flag=True, help="With --load: only what both have, by name and shape (fine-tuning).")
@click.option(
    "--resume", metavar="PATH", type=Place(), help="Go on where --save wrote this state, up to --epochs in all."
)
@click.option(
    "--save", metavar="PATH", type=Place(), help="Write the state there after training (.safetensors or .ckpt)."
)
@click.option("--save-every", type=click.IntRange(min=1), metavar="K", help="And after every K-th optimizer step.")
@click.option(
    "--save-minutes", type=click.FloatRange(min=0, min_open=True), metavar="T", help="And when T minutes have passed."
)
@click.option(
    "--keep",
    type=click.IntRange(min=1),
    default=2,
    show_default=True,
    metavar="K",
    help="How many states to keep then.",
)
@click.option(
    "--end-of-epoch",
    type=click.Choice(["carry", "flush", "drop"]),
    default="carry",
    show_default=True,
    help="What happens to a cycle that an epoch does not fill: it goes on, ends early, or is left out.",
)
@click.option(
    "--set", "settings", multiple=True, metavar="NAME=VALUE", help="Set a hyperparameter, such as learning_rate=0.001."
)
@click.option("--val", metavar="FILE.npz", type=Place(), help="Evaluate on this data after each epoch.")
@click.option(
    "--val-split",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    metavar="P",
    help="Evaluate on this part of the data instead, and train on the rest: 0.1.",
)
@click.option(
    "--eval",
    "evaluate",
    metavar="FILE",
    help="FILE.py:FUNCTION, called with the session after each epoch; or FILE.npz, data to evaluate on, without "
    "--data only that.",
)
@click.option(
    "--metric", "metrics", type=click.Choice(METRICS), multiple=True, metavar="NAME",
    help=f"One of {', '.join(METRICS)}; may be given again [loss].",
)  # fmt: skip
@click.option("--label", metavar="INPUT", help="What metrics compare with [what only the loss takes].")
@click.option("--allow-nonfinite", is_flag=True, help="Go on when data, loss or weights are not finite.")
@click.option(
    "--ranks", type=click.IntRange(min=1), default=1, metavar="N", help="Train in N processes on this machine."
)
@click.option(
    "--check-replicas",
    type=click.IntRange(min=1),
    metavar="K",
    help="Compare the weights of all ranks after every K-th optimizer step.",
)
@click.option(
    "--sync",
    type=click.Choice(["none", "average"]),
    default="none",
    show_default=True,
    help="BatchNorm statistics in what --save writes: those of the first rank, or averaged over the ranks.",
)
@click.option("--master-port", type=click.IntRange(1024, 65535), metavar="P", help="Where ranks meet [a free port].")
@click.option("--log-dir", metavar="DIR", type=Place(), help="Keep what each rank printed there.")
@click.option("--print-lowered", is_flag=True, help="Print what MindSpore will run to stderr; without data only that.")
@click.option("-q", "--quiet", is_flag=True, help="Show nothing of the training on stderr.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout instead of the report.")
@click.version_option(package_name="boost-compile")
@click.pass_obj
def command(arguments: list[str], /, **options: Any) -> None:
    """Trains PROGRAM: a program directory (.boost), a MindIR training graph, or text (.ir, .txt).

    With --save, SIGTERM and ctrl-C end the training where it can be saved, with exit code 75: --resume goes on there. A
    second signal ends it at once.
    """
    from ..ir.analysis.training.trains import check_trains
    from .doctor.examination import certain_findings
    from .training.evaluation import evaluate_only
    from .training.job import Job
    from .training.ranks import schedule, train_in_ranks
    from .training.report import print_report
    from .training.resuming import outcome
    from .training.train import train

    if rank.role() == "MS_SCHED":
        schedule()
        return
    job = Job(arguments=tuple(arguments), **options)
    interruption.ends_with(partial(outcome, job, time.time_ns()))
    job.check()
    program = cli.read_program(job.program)
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
    else:
        print_report(document)


def main() -> None:
    if rank.role() is None:
        cli.run(command)
    rank.run(command)


if __name__ == "__main__":
    main()
