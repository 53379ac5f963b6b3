"""Evaluation in boost-run: data after each epoch, or alone, and ``--eval FILE.py:FUNCTION``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...ir.core.errors import RuntimeFailure
from ...ir.core.wording import counted
from ...runtime.evaluation.metrics import LOSS
from .. import cli
from .job import Job, is_data, place_of
from .loading import load, set_hyperparameters, settings_of

if TYPE_CHECKING:
    from ...ir.core.program import Program
    from ...runtime.data.sources import NamedArrays
    from ...runtime.evaluation.evaluate import Judged
    from ...runtime.training.callback import Evaluate
    from ...runtime.training.session import Session


def evaluator_of(job: Job, program: Program, held_out: NamedArrays | None) -> Evaluate | None:
    """The question after each epoch; None for nothing. ``held_out`` is the part of the data that --val-split keeps."""
    from ...runtime.data.sources import read_data

    parts: dict[str, Evaluate] = {}
    if held_out is not None:
        parts["val"] = _on_data("val", job, judged_of(job, program, held_out))
    elif job.val is not None:
        parts["val"] = _on_data("val", job, judged_of(job, program, read_data(job.val)))
    if job.evaluate is not None and is_data(job.evaluate):
        parts["eval"] = _on_data("eval", job, judged_of(job, program, read_data(job.evaluate)))
    elif job.evaluate is not None:
        parts[place_of(job.evaluate)[1]] = function_at(job.evaluate)
    if len(parts) < 2:
        return next(iter(parts.values()), None)

    def all_of(session: Session) -> dict[str, Any]:
        together: dict[str, Any] = {}
        for name, ask in parts.items():
            found = ask(session)
            together.update(found if isinstance(found, dict) else {name: found})
        return together

    return all_of


def judged_of(job: Job, program: Program, data: NamedArrays) -> Judged:
    """The data as inputs of the program's network, and its labels; Error where it does not fit."""
    from ...runtime.evaluation.evaluate import check_metrics, judged, network_of

    found = network_of(program)
    given = judged(program, found, data, job.label)
    check_metrics(program, found, given, job.metrics or (LOSS,))
    return given


def _on_data(name: str, job: Job, given: Judged) -> Evaluate:
    """The metrics by the names that they have beside those of the training: ``val_loss``."""

    def evaluate(session: Session) -> dict[str, float]:
        found = session.evaluate(given, job.metrics, batch_size=job.batch_size)
        return {f"{name}_{metric}": value for metric, value in found.items()}

    return evaluate


def function_at(place: str) -> Evaluate:
    """The function that ``FILE.py:FUNCTION`` names. Its exceptions, and those of running the file, are Errors."""
    from runpy import run_path

    path, name = place_of(place)
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


def evaluate_only(job: Job, program: Program) -> None:
    """``--eval FILE.npz`` without ``--data``: nothing is trained, and the metrics are printed."""
    from ...runtime.data.sources import read_data

    assert job.evaluate is not None
    given = judged_of(job, program, read_data(job.evaluate))
    settings = settings_of(job.settings, program)

    from ...runtime.training.session import Session

    session = Session(program, device=job.device, seed=job.seed)
    if job.load is not None:
        load(session, job.load, job.partial)
    if job.load_adapter is not None:
        session.load_adapter(job.load_adapter)
    set_hyperparameters(session, settings)
    session.weights = job.weights
    values = session.evaluate(given, job.metrics, batch_size=job.batch_size)
    document = {"program": job.program, "data": job.evaluate, "samples": given.samples, "metrics": values}
    if job.as_json:
        cli.print_json(document)
        return
    out = cli.console()
    shown = cli.table("", "metric", "value", numbers=("value",))
    for name, value in values.items():
        shown.add_row(name, f"{value:.6g}")
    out.print(shown)
    out.print(f"{counted(given.samples, 'sample')} of {cli.escape(job.evaluate)}.", soft_wrap=True)
