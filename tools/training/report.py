"""The report of boost-run at its end: one document, as JSON or in words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from statistics import fmean
from typing import TYPE_CHECKING, Any

from ...ir.core.wording import counted
from .. import cli
from ..jobs.display import joined
from ..tables import say

if TYPE_CHECKING:
    from ...runtime.training.findings import Finding
    from ...runtime.training.history import History
    from ...runtime.training.session import Session
    from .job import Job


def document_of(job: Job, history: History, session: Session, findings: Sequence[Finding]) -> dict[str, Any]:
    """The report of one rank, or of a process that is alone."""
    return {
        "program": job.program,
        "data": job.data,
        "device": job.device,
        "ranks": session.ranks.size,
        "restarts": 0,
        "epochs": [
            {
                "number": e.number,
                "loss": e.loss if history.returns_loss else None,
                "micro_batches": e.micro_batches,
                "samples": e.samples,
                "dropped": e.dropped,
                "seconds": e.seconds,
                "steps": e.steps,
                "skipped": e.skipped,
                "rates": e.rates,
                "evaluation": e.evaluation,
            }
            for e in history.epochs
        ],
        "cycles": len(history.cycles),
        "losses": history.losses if history.returns_loss else [],
        "skipped_updates": sum(not c.updated for c in history.cycles),
        "flushed": history.flushed,
        "short_steps": len(history.short_cycles),
        "pending": session.position,
        "saved": job.save,
        "saved_weights": job.save_weights,
        "saved_adapter": job.save_adapter,
        "weights": job.weights,
        "logs": list(job.log),
        "findings": [asdict(finding) for finding in findings],
    }


def merged(documents: list[dict[str, Any]]) -> dict[str, Any]:
    """The job as one training: mean losses, all samples; what all ranks share, and the evaluation, from the first."""
    merged = dict(documents[0])
    merged["losses"] = [fmean(losses) for losses in zip(*(d["losses"] for d in documents), strict=True)]
    merged["epochs"] = [joined(epochs) for epochs in zip(*(d["epochs"] for d in documents), strict=True)]
    return merged


def print_report(document: dict[str, Any]) -> None:
    """What is to be noted of the training, on stdout; its epochs were shown as they ended."""
    out = cli.console()
    if not document["epochs"]:
        say(out, "Nothing was left to train: --epochs says up to which epoch.")
    say(out, "; ".join(_notes(document)) + ".")
    if not all(math.isfinite(loss) for loss in document["losses"]):
        say(out, "The loss was not finite in places.", "yellow")
    for line in _findings(document["findings"]):
        say(out, line, "yellow")
    if document["saved"] is not None:
        say(out, f"Saved the state to {cli.escape(document['saved'])}.")
    if document["saved_weights"] is not None:
        which = {"average": "averaged ", "merged": "merged "}.get(document["weights"], "")
        say(out, f"Saved the {which}weights to {cli.escape(document['saved_weights'])}.")
    if document["saved_adapter"] is not None:
        say(out, f"Saved the adapters to {cli.escape(document['saved_adapter'])}.")


def _findings(findings: list[dict[str, Any]]) -> list[str]:
    """What the monitors have found, a line for each kind: how often, and of which weights first."""
    kinds: dict[str, list[dict[str, Any]]] = {}
    for finding in findings:
        kinds.setdefault(finding["what"], []).append(finding)
    lines = []
    for what, found in kinds.items():
        weights = cli.folded(list(dict.fromkeys(cli.escape(f["weight"]) for f in found)))
        cycles = counted(len({f["cycle"] for f in found}), "step")
        lines.append(f"Monitors: {what} in {cycles}, first in step {found[0]['cycle']}: {', '.join(weights)}.")
    return lines


def _notes(document: dict[str, Any]) -> list[str]:
    ranks = f" on {counted(document['ranks'], 'rank')}" if document["ranks"] > 1 else ""
    notes = [counted(document["cycles"], "optimizer step") + ranks]
    if document["restarts"]:
        notes[0] += f" since restart {document['restarts']}"
    if document["skipped_updates"]:
        notes.append(f"{document['skipped_updates']} of them skipped for an overflow")
    if document["short_steps"] > bool(document["flushed"]):
        notes.append(f"{document['short_steps']} of them with fewer micro-batches than a window has")
    elif document["flushed"]:
        notes.append(f"the last with {counted(document['flushed'], 'micro-batch')} only")
    if document["pending"]:
        notes.append(f"{counted(document['pending'], 'micro-batch')} of the next one pending")
    dropped = sum(e["dropped"] for e in document["epochs"])
    if any(e["loss"] is None for e in document["epochs"]):
        notes.append("the program returns no loss")
    if dropped:
        notes.append(f"{counted(dropped, 'sample')} left out, they did not fill a micro-batch")
    return notes
