"""What every pass is: options by keyword that never change, and a docstring of its own."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import Any

import pytest
from boost_compile.passes.framework.base import Pass
from boost_compile.passes.framework.options import option


class Sample(Pass):
    """Does this.

    And more.
    """

    name = "sample"
    factor: float = option(1.0, help="a factor", minimum=0)


class Silent(Pass):
    name = "silent"


def test_options_are_given_by_keyword() -> None:
    make: Any = Sample
    assert make(factor=2).options() == {"factor": 2.0}
    with pytest.raises(TypeError):
        make(2.0)


def test_a_pass_does_not_change() -> None:
    made: Any = Sample()
    with pytest.raises(FrozenInstanceError):
        made.factor = 3.0
    twin = made.as_optional()
    assert (twin.optional, made.optional) == (True, False)
    assert twin == made


def test_the_docstring_is_that_of_the_class() -> None:
    assert Sample.summary() == "Does this."
    assert (Silent.__doc__, Silent.summary()) == ("", "")
