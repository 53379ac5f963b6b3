"""Tests of a device are skipped, with the reason, where its stand-ins cannot be built."""

from __future__ import annotations

import pytest

from .build import NotPossible
from .running import ENVIRONMENTS


def built(device: str) -> str:
    """The device, whose stand-ins are there now."""
    try:
        ENVIRONMENTS[device]()
    except NotPossible as reason:
        pytest.skip(str(reason))
    return device
