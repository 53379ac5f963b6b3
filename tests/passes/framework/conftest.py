"""What tests of the framework share: a program, and passes that the registry knows while a test runs."""

from __future__ import annotations

import pytest
from boost_compile.ir.core.program import Program
from boost_compile.ir.text import parse_program
from boost_compile.passes import REGISTRY

from tests.passes.framework.examples import TEXT, Idle, Negate


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    for cls in (Negate, Idle):
        monkeypatch.setitem(REGISTRY, cls.name, cls)


@pytest.fixture
def program() -> Program:
    return parse_program(TEXT)
