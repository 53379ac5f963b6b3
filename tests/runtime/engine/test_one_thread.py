"""What becomes of a thread that runs a session while another one does."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from boost_compile.runtime.engine import one_thread

import boost_compile as bc
from tests.networks import CASES


def test_another_thread_is_refused_while_a_session_runs(exported: Callable[[str], Path]) -> None:
    program = bc.load(exported("mlp"))
    session = bc.Session(program)
    batch = CASES["mlp"].batches(1)[0]
    inside, leave = threading.Event(), threading.Event()

    def runs() -> None:
        assert one_thread.enter(False)
        inside.set()
        leave.wait(60)
        one_thread.leave()

    other = threading.Thread(target=runs)
    other.start()
    assert inside.wait(60)
    before = session.position
    try:
        for use in (lambda: session.step(*batch), lambda: session.predict(batch[0]), lambda: bc.Session(program)):
            with pytest.raises(bc.Error, match=r"another thread of this process is running a session\. .* one thread"):
                use()
    finally:
        leave.set()
        other.join()
    assert session.position == before
    losses: list[float] = []
    other = threading.Thread(target=lambda: losses.append(session.step(*batch).loss))
    other.start()
    other.join()
    assert losses == [bc.Session(program).step(*batch).loss]
