"""This process as one rank of a job."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache

from ...ir.core.errors import RuntimeFailure


@dataclass(frozen=True, slots=True)
class Ranks:
    """``rank`` of ``size``, counted from 0."""

    rank: int = 0
    size: int = 1


def join_ranks() -> Ranks:
    """Who this process is. Starts MindSpore's communication in a process that msrun started, unless the user did; the
    device must be set before. In msrun's scheduler, which runs the same script, this does not return: it serves the
    ranks until they are done."""
    from mindspore import communication

    if not communication.GlobalComm.INITED:
        if os.environ.get("MS_ROLE") not in ("MS_WORKER", "MS_SCHED"):
            return Ranks()
        try:
            communication.init()
        except Exception as e:
            address = f"{os.environ.get('MS_SCHED_HOST', '127.0.0.1')}:{os.environ.get('MS_SCHED_PORT', '8118')}"
            raise RuntimeFailure(
                f"this process was started as one rank of a job (MS_ROLE is set), but the job did not come together at "
                f"{address} (MS_SCHED_HOST, MS_SCHED_PORT): another process may use that port, or some ranks were not "
                "started. Look at the logs of all ranks and of the scheduler."
            ) from e
    return Ranks(communication.get_rank(), communication.get_group_size())


@cache
def create_group(name: str, members: tuple[int, ...]) -> None:
    """Once in a process: MindSpore keeps groups as long as it lives."""
    from mindspore import communication

    communication.create_group(name, list(members))
