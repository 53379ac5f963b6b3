"""A remote shell without any security, for hosts that are network namespaces of this machine.

``serve ADDRESS`` runs what comes; ``ADDRESS COMMAND`` has a command run there, with the caller's stdin and stdout.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading

PORT = 2222


def serve(address: str) -> None:
    with socket.create_server((address, PORT)) as server:
        print("ready", flush=True)
        while True:
            connection, _ = server.accept()
            with connection:
                command = connection.makefile("rb", buffering=0).readline().decode()
                subprocess.Popen(["sh", "-c", command], stdin=connection, stdout=connection, start_new_session=True)


def call(address: str, command: str) -> None:
    with socket.create_connection((address, PORT), timeout=5) as connection:
        connection.settimeout(None)
        connection.sendall(command.encode() + b"\n")
        threading.Thread(target=_send, args=(connection,), daemon=True).start()
        while received := connection.recv(1 << 16):
            os.write(1, received)


def _send(connection: socket.socket) -> None:
    while given := os.read(0, 1 << 16):
        connection.sendall(given)
    connection.shutdown(socket.SHUT_WR)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2])
    else:
        call(sys.argv[1], sys.argv[2])
