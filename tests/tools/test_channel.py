"""The messages between hosts of a job: nothing blocks, nothing is lost, and silence is noticed."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest
from boost_compile.tools.jobs.channel import Channel

Ends = tuple[Channel, Channel, list[int]]


@pytest.fixture
def ends() -> Iterator[Ends]:
    (a, b), (c, d) = os.pipe(), os.pipe()
    files = [a, b, c, d]
    yield Channel(a, d), Channel(c, b), files
    for file in files:
        os.close(file)


def test_a_message_that_no_pipe_holds_arrives_whole_and_in_order(ends: Ends) -> None:
    near, far, _ = ends
    near.send(losses=["x" * 100] * 10_000)
    near.send(stop=True)
    found: list[dict[str, object]] = []
    for _ in range(1000):
        found += far.receive()
        near.receive()
    assert found == [{"losses": ["x" * 100] * 10_000}, {"stop": True}]


def test_what_a_login_says_is_no_message(ends: Ends) -> None:
    near, far, files = ends
    os.write(files[3], b'Welcome!\n"text"\n[1]\n{"ready": ')
    assert far.receive() == []
    os.write(files[3], b"true}\n")
    assert far.receive() == [{"ready": True}]
    assert near.lost == far.lost == ""


def test_an_end_that_closes_or_says_nothing_is_lost(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    near, far, files = ends
    clock = [time.monotonic()]
    monkeypatch.setattr("boost_compile.tools.jobs.channel.time.monotonic", lambda: clock[0])
    for _ in range(3):
        clock[0] += 15
        near.receive()  # says that it is there
        assert far.receive() == []
        assert (far.silence, far.lost) == (0, "")
    clock[0] += 21
    assert far.lost == "has not answered for 20 s"
    os.close(files.pop())
    assert far.receive() == []
    assert far.lost == "has ended the connection"
