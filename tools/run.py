"""boost-run: trains a program, or a MindIR training graph, on data in a file."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from . import cli

if TYPE_CHECKING:
    from ..runtime.fit import History


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
@click.option("--save", metavar="PATH", help="Write the state there after training (.safetensors, .ckpt or .npz).")
@click.option("--eval", "evaluate", metavar="FILE.py:FUNCTION", help="Call FUNCTION(session) after each epoch.")
@click.option("--allow-nonfinite", is_flag=True, help="Go on when the loss is no longer finite.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout instead of the report.")
@click.version_option(package_name="boost-compile")
def command(
    program: str,
    data: str,
    epochs: int,
    device: str,
    batch_size: int | None,
    seed: int,
    shuffle: bool,
    load: str | None,
    save: str | None,
    evaluate: str | None,
    allow_nonfinite: bool,
    as_json: bool,
) -> None:
    """Trains PROGRAM: a program directory (.boost), a MindIR training graph, or text (.ir, .txt)."""
    for path in filter(None, (data, load)):
        _check_readable(path)
    if save is not None:
        cli.check_writable(save)
    loaded = cli.read_program(program)
    evaluator = None if evaluate is None else _function(evaluate)

    from ..runtime.session import Session  # MindSpore starts here: everything that can be checked has been

    session = Session(loaded, device=device, seed=seed)
    if load is not None:
        session.load_state(load)
    history = session.fit(
        data,
        epochs=epochs,
        batch_size=batch_size,
        shuffle=shuffle,
        seed=seed,
        evaluate=evaluator,
        progress=False if as_json else None,
        allow_nonfinite=allow_nonfinite,
    )
    if save is not None:
        session.save(save)
    if as_json:
        cli.print_json(_document(history, program, data, device, save))
    else:
        _print_report(history, save)


def _check_readable(path: str) -> None:
    from ..ir.errors import RuntimeFailure

    if not os.path.isfile(path):
        raise RuntimeFailure(f"{path}: no such file")


def _function(place: str) -> Callable[[Any], Any]:
    """The function that ``FILE.py:FUNCTION`` names."""
    from runpy import run_path

    from ..ir.errors import RuntimeFailure

    path, colon, name = place.rpartition(":")
    if not colon or not path.endswith(".py"):
        raise RuntimeFailure(f"--eval {place}: write FILE.py:FUNCTION")
    _check_readable(path)
    try:
        found = run_path(path).get(name)
    except Exception as error:  # the user's file, so the user's error
        raise RuntimeFailure(f"--eval {place}: running {path} failed: {type(error).__name__}: {error}") from error
    if not callable(found):
        raise RuntimeFailure(f"--eval {place}: {path} defines no function '{name}'")
    return found  # type: ignore[no-any-return]


def _document(history: History, program: str, data: str, device: str, save: str | None) -> dict[str, Any]:
    return {
        "program": program,
        "data": data,
        "device": device,
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


def _print_report(history: History, save: str | None) -> None:
    from rich.markup import escape

    out = cli.console()
    numbers = ("epoch", "loss", "samples", "samples/s")
    shown = cli.table("", *numbers, "evaluation", numbers=numbers)
    for e in history.epochs:
        speed = f"{e.samples / e.seconds:,.0f}" if e.seconds > 0 else ""
        evaluation = "" if e.evaluation is None else str(e.evaluation)
        shown.add_row(str(e.number), f"{e.loss:.6g}", str(e.samples), speed, escape(evaluation))
    out.print(shown)
    skipped = sum(not c.updated for c in history.cycles)
    notes = [f"{len(history.cycles)} optimizer steps"]
    if skipped:
        notes.append(f"{skipped} of them skipped for an overflow")
    if history.flushed:
        notes.append(f"the last with {history.flushed} micro-batches only")
    if history.dropped:
        notes.append(f"{history.dropped} samples left out, they did not fill a micro-batch")
    out.print("; ".join(notes) + ".", soft_wrap=True)
    if not all(math.isfinite(loss) for loss in history.losses):
        out.print("The loss was not finite in places.", style="yellow")
    if save is not None:
        out.print(f"Saved the state to {escape(save)}.", soft_wrap=True)


def main() -> None:
    cli.run(command)


if __name__ == "__main__":
    main()
