"""The part of a job on another host: ``python -m boost_compile.tools.jobs.agent``, started there by boost-run over a
remote shell. It starts the ranks of its host, tells what they tell, and ends them when nobody listens any more."""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NoReturn

from ...ir.core.errors import Error
from .channel import Channel
from .folder import KINDS, JobFolder
from .lifeline import adopting
from .running import POLL, Job, RunningJob
from .start import start


class Agent:
    def __init__(self) -> None:
        self.channel = Channel(0, 1)
        self.received: list[dict[str, Any]] = []
        self._relayed: dict[tuple[int, str], Any] = {}
        self._ended: set[int] = set()

    def wait_for(self, key: str) -> Any:
        """The value of the next message that has the key. Leaves where the connection ends before."""
        while True:
            self.listen()
            while self.received:
                message = self.received.pop(0)
                if key in message:
                    return message[key]
            time.sleep(POLL)

    def listen(self) -> None:
        self.received += self.channel.receive()
        if self.channel.lost:
            sys.exit(f"the host that started this job {self.channel.lost}")

    def stay(self) -> NoReturn:
        """Until what was sent has been taken and the connection ends."""
        while True:
            self.listen()
            time.sleep(POLL)

    def run(self, order: dict[str, Any], running: RunningJob) -> NoReturn:
        for path in order["files"]:
            if not os.path.exists(path):
                self.channel.send(missing=path)
                self.stay()
        self.channel.send(ready=True)
        start(running, self.wait_for("port"), order["node"], self.listen)
        while True:
            self.listen()
            for message in self.received:
                if "stop" in message:
                    self._stop(running)
            self.received.clear()
            running.look()
            self._relay(running)
            time.sleep(POLL)

    def _stop(self, running: RunningJob) -> None:
        for member in running.members.values():
            if member.status is None:
                with suppress(ProcessLookupError):
                    os.kill(member.pid, signal.SIGTERM)

    def _relay(self, running: RunningJob) -> None:
        for member in running.workers:
            assert member.rank is not None
            for kind in KINDS:
                stamp = running.folder.stamp(member.rank, kind)
                if stamp is not None and self._relayed.get((member.rank, kind)) != stamp:
                    self._relayed[member.rank, kind] = stamp
                    document = running.folder.told(member.rank, kind)
                    self.channel.send(rank=member.rank, kind=kind, document=document)
            if member.status is not None and member.rank not in self._ended:
                self._ended.add(member.rank)
                self.channel.send(rank=member.rank, status=member.status, said=running.last_error(member))


def main() -> None:
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))
    agent = Agent()
    order = agent.wait_for("order")
    folder = TemporaryDirectory(prefix="boost-run-", ignore_cleanup_errors=True)
    with folder as path, adopting():
        job = Job(order["ranks"], order["arguments"], hosts=order["hosts"])
        running = RunningJob(job, JobFolder(Path(path)), Path(order["log_dir"] or f"{path}/logs"))
        try:
            agent.run(order, running)
        except Error as error:
            agent.channel.send(error=str(error))
            agent.stay()


if __name__ == "__main__":
    main()
