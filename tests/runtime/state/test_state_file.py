"""State that is taken back: names, shapes and types are checked before anything changes."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
from boost_compile.ir.core.errors import RuntimeFailure
from boost_compile.ir.core.types import DType, TensorType
from boost_compile.runtime.engine.exchange import Exchange
from boost_compile.runtime.engine.ranks import Ranks
from boost_compile.runtime.state.checkpoint import write_state
from boost_compile.runtime.state.own_state import RANKS, of_rank
from boost_compile.runtime.state.state_file import read_saved

TYPES = {"w": TensorType(DType.FLOAT32, (2,)), "half": TensorType(DType.BFLOAT16, (1,))}
GOOD = {"w": np.ones(2, np.float32), "half": np.zeros(1, np.float32)}
ALONE = Exchange(Ranks())


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({**GOOD, "v": np.ones(2)}, "holds 'v', which the program does not know"),
        ({"w": GOOD["w"]}, "lacks 1 of 2 names, first 'half'"),
        ({**GOOD, "w": np.ones(3, np.float32)}, r"holds shape \[3\] for it"),
        ({**GOOD, "w": np.ones(2)}, "holds float64; convert it to float32"),
        ({**GOOD, "half": np.zeros(1, np.uint16)}, "holds uint16; convert it to float32"),
        ({**GOOD, "boost_compile.later": np.zeros(1)}, "which this version does not know"),
    ],
)
def test_what_does_not_fit(given: dict[str, np.ndarray], said: str) -> None:
    with pytest.raises(RuntimeFailure, match=said):
        read_saved(given, TYPES, ALONE, True, {})


def test_not_strict_takes_what_both_have() -> None:
    saved = read_saved({"w": GOOD["w"], "v": np.ones(7)}, TYPES, ALONE, False, {})
    assert (list(saved.values), saved.origin, saved.foreign) == (["w"], "the given state", False)
    with pytest.raises(RuntimeFailure, match="holds shape"):
        read_saved({"w": np.ones(7)}, TYPES, ALONE, False, {})


@pytest.mark.parametrize(("size", "value", "foreign"), [(2, 5, False), (3, 1, True)])
def test_a_rank_takes_its_own_from_a_job_of_the_same_size(
    size: int, value: float, foreign: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "saved.safetensors"
    write_state(path, {}, {**GOOD, of_rank(1, "w"): np.full(2, 5, np.float32)}, {RANKS: "2"})
    saved = read_saved(path, TYPES, Exchange(Ranks(1, size)), True, {})
    assert saved.values["w"].tolist() == [value, value]
    assert set(saved.values) == set(TYPES)
    with caplog.at_level(logging.WARNING, "boost_compile"):
        saved.warn_if_foreign()
    assert [f"{path} was saved by 2 ranks" in record.getMessage() for record in caplog.records] == [True] * foreign
