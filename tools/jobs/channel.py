"""Messages between two hosts of a job, over the pipes of a remote shell: a line of JSON each."""

from __future__ import annotations

import json
import os
import time
from typing import Any

BEAT = 1.0
"""Seconds after which one that has nothing to say says so."""
WAVERING = 4.0
"""Seconds of silence after which the other side may be gone."""
SILENCE = 20.0
"""Seconds of silence after which it is: a machine without power or network says nothing more."""


class Channel:
    """One end. Nothing blocks; what the other end does not take yet is kept. Lines that are no message (the greeting of
    a login shell) are passed over."""

    def __init__(self, incoming: int, outgoing: int):
        os.set_blocking(incoming, False)
        os.set_blocking(outgoing, False)
        self._incoming, self._outgoing = incoming, outgoing
        self._read, self._unsent = b"", b""
        self._said = self._heard = time.monotonic()
        self._closed = False

    @property
    def silence(self) -> float:
        """Seconds since something was heard."""
        return time.monotonic() - self._heard

    @property
    def lost(self) -> str:
        """Why nothing more will be heard; "" while something may."""
        if self._closed:
            return "has ended the connection"
        return f"has not answered for {SILENCE:g} s" if self.silence > SILENCE else ""

    def send(self, **message: Any) -> None:
        self._unsent += json.dumps(message).encode() + b"\n"
        self._said = time.monotonic()
        self._flush()

    def receive(self) -> list[dict[str, Any]]:
        """What has come since the last call, which must not be long ago: it also tells the other end that this one is
        there."""
        if time.monotonic() - self._said > BEAT:
            self.send()
        self._flush()
        *lines, self._read = (self._read + self._arrived()).split(b"\n")
        return [message for line in lines if (message := _message(line))]

    def _arrived(self) -> bytes:
        found = b""
        while not self._closed:
            try:
                part = os.read(self._incoming, 1 << 16)
            except BlockingIOError:
                break
            except OSError:
                part = b""
            found += part
            self._closed = not part
            self._heard = time.monotonic()
        return found

    def _flush(self) -> None:
        try:
            while self._unsent and not self._closed:
                self._unsent = self._unsent[os.write(self._outgoing, self._unsent) :]
        except BlockingIOError:
            pass
        except OSError:
            self._closed = True


def _message(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
