"""The hosts of a job, from a file with an address a line; addresses and ports of this machine."""

from __future__ import annotations

import socket

from ...ir.core.errors import RuntimeFailure

LOOPBACK = "127.0.0.1"


def read_hosts(path: str) -> tuple[str, ...]:
    """The IP addresses of a file that names hosts: this machine first, which runs boost-run, then the others. ``#``
    begins a comment. RuntimeFailure, which names the line, where that is not what the file holds."""
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
    except (OSError, ValueError) as error:
        raise RuntimeFailure(f"{path}: cannot be read: {error}") from error
    found: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        where = f"{path}, line {number}: {words[0]}"
        if len(words) > 1:
            raise RuntimeFailure(f"{where} is followed by more; a line is an address, and all hosts have as many ranks")
        address = _address(words[0], where)
        if address in found:
            raise RuntimeFailure(f"{where} is the host of line {found[address]}")
        if not found and not is_free(0, address):
            raise RuntimeFailure(f"{where} is another machine; boost-run runs on the first host: start it there")
        if found and is_free(0, address):
            raise RuntimeFailure(f"{where} is this machine, which is the first host already")
        found[address] = number
    if not found:
        raise RuntimeFailure(f"{path}: names no host; write an address a line, that of this machine first")
    return tuple(found)


def _address(name: str, where: str) -> str:
    try:
        return str(socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)[0][4][0])
    except OSError as error:
        raise RuntimeFailure(f"{where} is no host that this machine knows ({error.strerror})") from None


def free_port(address: str = LOOPBACK) -> int:
    with _socket(address) as s:
        s.bind((address, 0))
        port: int = s.getsockname()[1]
        return port


def is_free(port: int, address: str = LOOPBACK) -> bool:
    """Whether this machine has the address, and nobody listens there on the port (0: any)."""
    with _socket(address) as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            s.bind((address, port))
        except OSError:
            return False
        return True


def _socket(address: str) -> socket.socket:
    return socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
