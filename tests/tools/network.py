"""A network of hosts that are network namespaces of this machine, joined by a bridge in one more. Nothing of it is seen
outside, and nothing stays."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import psutil
import pytest
from boost_compile.tools.jobs.lifeline import end_with_parent

SHELL = Path(__file__).with_name("remote_shell.py")
PREFIX = "boost-test-"


class Network:
    """Host k (from 1) has the address 10.77.0.k, and runs remote shells (remote_shell.py) behind the first host's
    ``rsh``. Skips the test where the system does not let us."""

    rsh = f"{sys.executable} {SHELL}"

    def __init__(self, hosts: int):
        self.name = f"{PREFIX}{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self.addresses = [f"10.77.0.{k}" for k in range(1, hosts + 1)]
        self._servers: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Network:
        if shutil.which("ip") is None:
            pytest.skip("makes network namespaces, and this system has no command ip")
        _clear_leftovers()
        try:
            for name in (self.name, *map(self._namespace, self.addresses)):
                ip("netns", "add", name)
            ip("-n", self.name, "link", "add", "bridge", "type", "bridge")
            ip("-n", self.name, "link", "set", "bridge", "up")
            for number, address in enumerate(self.addresses):
                there, port = self._namespace(address), f"port{number}"
                ip("-n", self.name, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", there)
                ip("-n", self.name, "link", "set", port, "master", "bridge", "up")
                ip("-n", there, "addr", "add", f"{address}/24", "dev", "eth0")
                ip("-n", there, "link", "set", "eth0", "up")
                ip("-n", there, "link", "set", "lo", "up")
        except subprocess.CalledProcessError as error:
            self.__exit__()
            pytest.skip(f"makes network namespaces, which this system refuses: {error.stderr.strip()}")
        return self

    def __exit__(self, *_: object) -> None:
        for server in self._servers:
            server.kill()
            server.wait()
        for name in (*map(self._namespace, self.addresses), self.name):
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)

    def _namespace(self, address: str) -> str:
        return f"{self.name}-{address.rpartition('.')[2]}"

    def serve(self, number: int, before: str = "true", **options: Any) -> None:
        """Starts the remote shells of a host, after a command in its own mount namespace."""
        address = self.addresses[number - 1]
        line = f"{before} && exec {self.rsh} serve {address}"
        server = self.start(number, "sh", "-c", line, stdout=subprocess.PIPE, text=True, **options)
        self._servers.append(server)
        assert server.stdout is not None
        assert server.stdout.readline() == "ready\n"

    def start(self, number: int, *command: str, **options: Any) -> subprocess.Popen[str]:
        """Starts a command on a host."""
        there = self._namespace(self.addresses[number - 1])
        return subprocess.Popen(["ip", "netns", "exec", there, *command], preexec_fn=end_with_parent, **options)

    def unplug(self, number: int) -> None:
        """No packet comes from the host or reaches it any more."""
        ip("-n", self.name, "link", "set", f"port{number - 1}", "down")


def ip(*words: str) -> str:
    return subprocess.run(["ip", *words], capture_output=True, text=True, check=True).stdout


def _clear_leftovers() -> None:
    """Removes what tests that were killed have left; the name says of which process it was."""
    for name in (line.split()[0] for line in ip("netns", "list").splitlines()):
        if name.startswith(PREFIX) and not psutil.pid_exists(int(name.removeprefix(PREFIX).partition("-")[0])):
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)
