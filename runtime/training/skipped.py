"""The end of a training whose updates are all skipped."""

from __future__ import annotations

from ...ir.core.errors import RuntimeFailure
from ...ir.core.program import Schedule
from ...ir.core.wording import counted
from .result import StepResult


def check_skipped(schedule: Schedule, result: StepResult) -> None:
    """RuntimeFailure if the cycle that ``result`` ended was skipped, and too many in a row before it."""
    limit = schedule.max_skipped
    if limit is None:
        return
    skipped = result.skipped_cycles
    if skipped is None or skipped <= limit:
        return
    known = [] if result.loss is None else [f"the last loss was {result.loss}"]
    scales = ", ".join(f"{s:g}" for s in result.scales)
    known += [f"at a loss scale of {scales}"] if scales else []
    where = f" ({', '.join(known)})" if known else ""
    by = "overflow-check" if schedule.search is None else "dim-reduce"
    raise RuntimeFailure(
        f"the updates of the last {counted(skipped, 'window')} were all skipped, because gradients were "
        f"not finite{where}: training does not get anywhere. Look for bad values in the data "
        f"or the initial weights, or lower the learning rate. The option max_skipped of {by} allows more."
    )
