"""This process as one rank of a job."""

from __future__ import annotations

import pytest
from boost_compile.runtime.engine.ranks import join_ranks
from mindspore import communication

import boost_compile as bc


def test_a_job_that_does_not_come_together_is_named_with_its_port(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise RuntimeError("Failed to initialize distributed job cluster")

    monkeypatch.setattr(communication, "init", refuse)
    for name, value in {"MS_ROLE": "MS_SCHED", "MS_SCHED_HOST": "192.0.2.1", "MS_SCHED_PORT": "20001"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(bc.Error, match=r"did not come together at 192\.0\.2\.1:20001 .*: another process may use that"):
        join_ranks()
