"""boost-run: trains a program, or a MindIR training graph, on data in a file."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import click

from . import cli
from .jobs import rank
from .jobs.folder import JobFolder

if TYPE_CHECKING:
    from ..ir.program import Program
    from ..runtime.fit import History
    from ..runtime.session import Session


@click.command("boost-run", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("program")
@click.option("--data", required=True, metavar="FILE.npz", help="Arrays by input name (or in order), a row a sample.")
@click.option("--epochs", type=click.IntRange(min=1), default=1, show_default=True, help="Passes over the data.")
@click.option(
    "--device", type=click.Choice(["CPU", "GPU", "Ascend"], case_sensitive=False), default="CPU", show_default=True
)
@click.option("--batch-size", type=click.IntRange(min=1), metavar="B", help="Samples a micro-batch [as exported].")
@click.option("--seed", type=int, default=0, show_default=True, help="For the order of samples and random primitives.")
@click.option("--shuffle/--no-shuffle", default=True, help="Reorder the samples each epoch [on].")
@click.option("--load", metavar="PATH", help="Start from this state (.safetensors, .ckpt or .npz).")
@click.option("--resume", metavar="PATH", help="Go on where --save wrote this state, up to --epochs in all.")
@click.option("--save", metavar="PATH", help="Write the state there after training (.safetensors or .ckpt).")
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
@click.option("--eval", "evaluate", metavar="FILE.py:FUNCTION", help="Call FUNCTION(session) after each epoch.")
@click.option("--allow-nonfinite", is_flag=True, help="Go on when the loss is no longer finite.")
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
@click.option("--log-dir", metavar="DIR", help="Keep what each rank printed there.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout instead of the report.")
@click.version_option(package_name="boost-compile")
@click.pass_obj
def command(
    arguments: list[str],
    program: str,
    data: str,
    epochs: int,
    device: str,
    batch_size: int | None,
    seed: int,
    shuffle: bool,
    load: str | None,
    resume: str | None,
    save: str | None,
    save_every: int | None,
    save_minutes: float | None,
    keep: int,
    evaluate: str | None,
    allow_nonfinite: bool,
    ranks: int,
    check_replicas: int | None,
    sync: str,
    master_port: int | None,
    log_dir: str | None,
    as_json: bool,
) -> None:
    """Trains PROGRAM: a program directory (.boost), a MindIR training graph, or text (.ir, .txt).

    With --save, SIGTERM and ctrl-C end the training where it can be saved, with exit code 75: --resume goes on there. A
    second signal ends it at once.
    """
    if rank.role() == "MS_SCHED":
        _schedule()
        return
    if load is not None and resume is not None:
        raise click.UsageError("--load and --resume exclude each other: --resume loads too")
    for given, flag in ((save_every, "--save-every"), (save_minutes, "--save-minutes")):
        if given is not None and save is None:
            raise click.UsageError(f"{flag} needs --save: where to?")
    for path in filter(None, (data, load)):
        _check_readable(path)
    if resume is not None:
        from ..runtime.retention import previous_states

        if not previous_states(Path(resume)):
            _check_readable(resume)
    if save is not None:
        cli.check_writable(save)
    loaded = cli.read_program(program)
    if ranks > 1 and rank.role() is None:
        if evaluate is not None:
            _check_readable(_place(evaluate)[0])
        _check_job(loaded, data, batch_size, ranks)
        from .jobs.running import Job
        from .jobs.watch import run_job

        job = Job(ranks, arguments, master_port, log_dir, save, False if as_json else None)
        document = _merged(run_job(job))
    else:
        evaluator = None if evaluate is None else _function(evaluate)

        from ..runtime.retention import load_newest, save_and_retain
        from ..runtime.saving import SaveEvery
        from ..runtime.session import Session  # MindSpore starts here: everything that can be checked has been

        session = Session(loaded, device=device, seed=seed, check_replicas=check_replicas)
        own = rank.Rank(session.ranks.rank, JobFolder.of_environment())
        if own.number > 0:
            evaluator = None  # once is enough: the weights are the same
        if load is not None:
            session.load_state(load)
        if resume is not None:
            load_newest(session, resume)
        if save_every is None and save_minutes is None:
            keep = 1
        saving = None if save is None else SaveEvery(save, save_every, sync, minutes=save_minutes, keep=keep)
        history = _fitted(
            session,
            data,
            epochs=epochs,
            batch_size=batch_size,
            shuffle=shuffle,
            seed=seed,
            callbacks=[] if saving is None else [saving],
            evaluate=evaluator,
            progress=own if own.folder is not None else False if as_json or own.number > 0 else None,
            allow_nonfinite=allow_nonfinite,
            resume=resume is not None,
        )
        if save is not None:
            save_and_retain(session, save, keep, sync)
        document = _document(history, program, data, device, save, session.ranks.size)
        if own.finish(document) or own.number > 0:
            return
    if as_json:
        cli.print_json(document)
    else:
        _print_report(document)


def _fitted(session: Session, *arguments: Any, **options: Any) -> History:
    """``session.fit``; a training that was asked to stop, and saved, has an exit code of its own."""
    from ..runtime.stop import EXIT_CODE, Stopped

    try:
        return session.fit(*arguments, **options)
    except Stopped as stopped:
        raise cli.Ended(EXIT_CODE, str(stopped)) from None


def _schedule() -> None:
    """The process in which msrun lets the ranks of a job find each other; returns when the job is over."""
    import mindspore
    from mindspore import communication

    mindspore.set_device("CPU")
    communication.init()


def _check_job(program: Program, data: str, batch_size: int | None, ranks: int) -> None:
    """What every rank would find out, before any starts."""
    from ..ir.adasum import check_ranks, needs_job
    from ..ir.collectives import collectives
    from ..ir.errors import RuntimeFailure
    from ..runtime.data import Shard, open_source
    from ..runtime.plan import plan_turns

    graphs = program.graphs.values()
    if not any(needs_job(graph) or any(True for _ in collectives(graph)) for graph in graphs):
        raise RuntimeFailure(
            f"the program has nothing that ranks do together: {ranks} of them would train {ranks} different networks. "
            f"Compile it with the pass data-parallel or adasum"
        )
    for graph in graphs:
        check_ranks(graph, ranks)
    first = plan_turns(program, program.schedule.variant(0))[0].consumer
    open_source(data, program.graphs[first], batch_size, False, 0, Shard(0, ranks))


def _check_readable(path: str) -> None:
    from ..ir.errors import RuntimeFailure

    if not os.path.isfile(path):
        raise RuntimeFailure(f"{path}: no such file")


def _function(place: str) -> Callable[[Any], Any]:
    """The function that ``FILE.py:FUNCTION`` names."""
    from runpy import run_path

    from ..ir.errors import RuntimeFailure

    path, name = _place(place)
    _check_readable(path)
    try:
        found = run_path(path).get(name)
    except Exception as error:  # the user's file, so the user's error
        raise RuntimeFailure(f"--eval {place}: running {path} failed: {type(error).__name__}: {error}") from error
    if not callable(found):
        raise RuntimeFailure(f"--eval {place}: {path} defines no function '{name}'")

    def evaluator(session: Any) -> Any:
        try:
            return found(session)
        except Exception as error:
            raise RuntimeFailure(f"--eval {place}: {name} failed: {type(error).__name__}: {error}") from error

    return evaluator


def _place(text: str) -> tuple[str, str]:
    from ..ir.errors import RuntimeFailure

    path, colon, name = text.rpartition(":")
    if not colon or not path.endswith(".py"):
        raise RuntimeFailure(f"--eval {text}: write FILE.py:FUNCTION")
    return path, name


def _document(history: History, program: str, data: str, device: str, save: str | None, ranks: int) -> dict[str, Any]:
    return {
        "program": program,
        "data": data,
        "device": device,
        "ranks": ranks,
        "epochs": [
            {
                "number": e.number,
                "loss": e.loss,
                "micro_batches": e.micro_batches,
                "samples": e.samples,
                "dropped": e.dropped,
                "seconds": e.seconds,
                "evaluation": e.evaluation,
            }
            for e in history.epochs
        ],
        "cycles": len(history.cycles),
        "losses": history.losses,
        "skipped_updates": sum(not c.updated for c in history.cycles),
        "flushed": history.flushed,
        "saved": save,
    }


def _merged(documents: list[dict[str, Any]]) -> dict[str, Any]:
    """The job as one training: mean losses, all samples; what all ranks share, and the evaluation, from the first."""
    merged = dict(documents[0])
    merged["losses"] = [fmean(losses) for losses in zip(*(d["losses"] for d in documents), strict=True)]
    merged["epochs"] = [
        {
            **epochs[0],
            "loss": fmean(e["loss"] for e in epochs),
            "samples": sum(e["samples"] for e in epochs),
            "seconds": max(e["seconds"] for e in epochs),
        }
        for epochs in zip(*(d["epochs"] for d in documents), strict=True)
    ]
    return merged


def _print_report(document: dict[str, Any]) -> None:
    out = cli.console()
    save = document["saved"]
    if not document["epochs"]:
        out.print("Nothing was left to train: --epochs says up to which epoch.")
    else:
        numbers = ("epoch", "loss", "samples", "samples/s")
        shown = cli.table("", *numbers, "evaluation", numbers=numbers)
        for e in document["epochs"]:
            speed = f"{e['samples'] / e['seconds']:,.0f}" if e["seconds"] > 0 else ""
            evaluation = "" if e["evaluation"] is None else str(e["evaluation"])
            shown.add_row(str(e["number"]), f"{e['loss']:.6g}", str(e["samples"]), speed, cli.escape(evaluation))
        out.print(shown)
    notes = [f"{document['cycles']} optimizer steps" + (f" on {document['ranks']} ranks" * (document["ranks"] > 1))]
    if document["skipped_updates"]:
        notes.append(f"{document['skipped_updates']} of them skipped for an overflow")
    if document["flushed"]:
        notes.append(f"the last with {document['flushed']} micro-batches only")
    dropped = sum(e["dropped"] for e in document["epochs"])
    if dropped:
        notes.append(f"{dropped} samples left out, they did not fill a micro-batch")
    out.print("; ".join(notes) + ".", soft_wrap=True)
    if not all(math.isfinite(loss) for loss in document["losses"]):
        out.print("The loss was not finite in places.", style="yellow")
    if save is not None:
        out.print(f"Saved the state to {cli.escape(save)}.", soft_wrap=True)


def main() -> None:
    if rank.role() is None:
        cli.run(command)
    rank.run(command)


if __name__ == "__main__":
    main()
