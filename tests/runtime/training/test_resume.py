"""Training that stops and goes on where it was saved: the same samples, the same cycles, the same bits."""

from __future__ import annotations

from pathlib import Path

import pytest
from boost_compile.ir.core.errors import RuntimeFailure
from boost_compile.runtime.state.checkpoint import write_state

import boost_compile as bc
from tests.exact_resume import SavedAt
from tests.runtime.programs import running_mean, samples
from tests.runtime.training.support import assert_same_state, dataset, rows

PER_EPOCH = 5


def test_a_trained_state_is_trained_further(tmp_path: Path):
    data = (rows(PER_EPOCH),)
    whole, first, second = (bc.Session(running_mean(5)) for _ in range(3))
    whole.fit(data, epochs=3)
    first.fit(data, epochs=2)
    first.save(tmp_path / "two.safetensors")
    second.load_state(tmp_path / "two.safetensors")
    assert not second.fit(data, epochs=2, resume=True).epochs
    second.fit(data, epochs=3, resume=True)
    assert_same_state(second.state(), whole.state())


def test_a_dataset_goes_on_at_its_micro_batch(tmp_path: Path):
    saving = SavedAt(tmp_path, [8])
    whole, again = bc.Session(running_mean(4)), bc.Session(running_mean(4))
    whole.fit(dataset(rows(PER_EPOCH)), epochs=2, callbacks=[saving])
    again.load_state(saving.path(8))
    again.fit(dataset(rows(PER_EPOCH)), epochs=2, resume=True)
    assert_same_state(again.state(), whole.state())


def test_other_data_is_refused():
    session = bc.Session(running_mean(4))
    session.fit((rows(PER_EPOCH),), seed=1)
    for changed, fragment in (
        ({"data": (rows(6),), "seed": 1}, "number of samples was 10 then and 12 now"),
        ({"data": (rows(PER_EPOCH),), "seed": 2}, "seed of the order of samples was 1 then and 2 now"),
        ({"data": (rows(PER_EPOCH),), "shuffle": False}, "was 1 then and not set now"),
    ):
        with pytest.raises(RuntimeFailure, match=fragment):
            session.fit(**changed, epochs=2, resume=True)


def test_nothing_to_resume():
    session = bc.Session(running_mean(4))
    with pytest.raises(RuntimeFailure, match="nothing says where"):
        session.fit((rows(4),), resume=True)
    session.fit((rows(4),))
    session.step(samples(1)[0])
    with pytest.raises(RuntimeFailure, match="nothing says where"):
        session.fit((rows(4),), epochs=2, resume=True)


NUMBERS = '{{"epoch": {}, "micro_batch": 0, "cycle": 0, "order": {{}}}}'


@pytest.mark.parametrize("text", ["no json", "[]", '{"epoch": 1}', NUMBERS.format(-1), NUMBERS.format('"1"')])
def test_a_damaged_note_is_one_error(text: str, tmp_path: Path):
    session = bc.Session(running_mean(4))
    write_state(tmp_path / "x.safetensors", {}, session.state(), {"boost_compile.data_position": text})
    with pytest.raises(RuntimeFailure, match=r"x.safetensors: its note of the position"):
        session.load_state(tmp_path / "x.safetensors")
