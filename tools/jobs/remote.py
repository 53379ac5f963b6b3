"""Another host of a job, as the process that watches the job sees it."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from contextlib import suppress
from typing import Any

from ...ir.core.errors import RuntimeFailure
from .channel import WAVERING, Channel
from .folder import FAILURE
from .lifeline import end_with_parent
from .log import end_of
from .running import Loss, Member, RunningJob

LEAVING = 5.0
"""Seconds in which a host that is still there ends its ranks and clears up."""


class RemoteHost:
    """Host number ``node`` of a job, on which an agent (:mod:`.agent`) is started over a remote shell."""

    def __init__(self, running: RunningJob, node: int):
        job = running.job
        self.running = running
        self.address = job.hosts[node]
        self.members = [Member(0, node * job.on_a_host + i) for i in range(job.on_a_host)]
        running.elsewhere += self.members
        self.ready = False
        self._asked_to_stop = False
        self._errors = running.logs / f"host_{node}.log"
        self._errors.parent.mkdir(parents=True, exist_ok=True)
        line = f"cd {shlex.quote(os.getcwd())} && PYTHONSAFEPATH=1 exec {shlex.quote(sys.executable)} -m {AGENT}"
        try:
            with open(self._errors, "wb") as errors:
                self._shell = subprocess.Popen(
                    [*job.shell, self.address, line],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    preexec_fn=end_with_parent,
                    start_new_session=True,
                )
        except OSError as error:
            what = f"{job.shell[0]} cannot be run ({error.strerror}), which is to reach {self.address}"
            raise RuntimeFailure(f"{what}: boost-run --rsh names another command") from None
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        self._channel = Channel(self._shell.stdout.fileno(), self._shell.stdin.fileno())
        order = {
            "ranks": job.ranks,
            "arguments": list(job.arguments),
            "hosts": list(job.hosts),
            "log_dir": job.log_dir,
            "node": node,
            "files": list(job.files),
        }
        self._channel.send(order=order)

    @property
    def wavering(self) -> bool:
        """Whether it may be gone, which is not sure yet."""
        return self.address not in self.running.lost and self._channel.silence > WAVERING

    def begin(self, port: int) -> None:
        self._channel.send(port=port)

    def look(self) -> None:
        """Takes what it has told, and notes whether it is lost."""
        if self.address in self.running.lost:
            return
        if self.running.stopped and not self._asked_to_stop:
            self._asked_to_stop = True
            self._channel.send(stop=True)
        for message in self._channel.receive():
            self._take(message)
        if self._channel.lost:
            why = f"{self._channel.lost}{self._last_words()}"
            self.running.lost[self.address] = Loss(time.time() - self._channel.silence, why, self.ready)

    def _take(self, message: dict[str, Any]) -> None:
        if "missing" in message:
            raise RuntimeFailure(f"host {self.address} does not see {message['missing']}{SHARED}")
        if "error" in message:
            raise RuntimeFailure(f"host {self.address}: {message['error']}")
        self.ready = self.ready or "ready" in message
        if "document" in message:
            document = message["document"]
            if message["kind"] == FAILURE:
                document["time"] = time.time()  # clocks of two hosts differ
            self.running.folder.tell(message["rank"], message["kind"], document)
        elif "status" in message:
            (member,) = (m for m in self.members if m.rank == message["rank"])
            member.status, member.said, member.ended = message["status"], message["said"], time.time()

    def _last_words(self) -> str:
        with suppress(subprocess.TimeoutExpired):
            self._shell.wait(timeout=1)
        lines = end_of(self._errors).strip().splitlines()
        return f": {lines[-1]}" if lines else ""

    def close(self) -> None:
        """The agent ends when nobody listens; what does not is ended with the job."""
        assert self._shell.stdin is not None
        with suppress(OSError):
            self._shell.stdin.close()
        if self.address not in self.running.lost:
            with suppress(subprocess.TimeoutExpired):
                self._shell.wait(timeout=LEAVING)


AGENT = "boost_compile.tools.jobs.agent"
SHARED = "; program, data and saved states must be under the same path on all hosts"
