"""The cyclic collector pauses, and is as it was afterwards."""

from __future__ import annotations

import gc

import pytest
from boost_compile.ir.core.collector import paused_collector


@pytest.mark.parametrize("enabled", [True, False])
def test_it_is_as_it_was(enabled: bool) -> None:
    before = gc.isenabled()
    (gc.enable if enabled else gc.disable)()
    try:
        with paused_collector():
            with paused_collector():
                assert not gc.isenabled()
            assert not gc.isenabled()
        assert gc.isenabled() == enabled
        with pytest.raises(ZeroDivisionError):
            _fail()
        assert gc.isenabled() == enabled
    finally:
        (gc.enable if before else gc.disable)()


def _fail() -> None:
    with paused_collector():
        raise ZeroDivisionError
