"""The measure itself: it must see what it is there to see."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compare import assert_close, assert_equal, compare, noise_mask

INITIAL = {"w": np.ones(4, np.float32), "moments.w": np.zeros(4, np.float32), "step": np.array([0], np.int32)}
REFERENCE = {
    "w": np.full(4, 1.001, np.float32),
    "moments.w": np.full(4, 0.1, np.float32),
    "step": np.array([3], np.int32),
}


def changed(name: str, index: int, value: float) -> dict[str, np.ndarray]:
    state = {k: v.copy() for k, v in REFERENCE.items()}
    state[name][index] = value
    return state


def test_equal_states_have_no_error() -> None:
    result = assert_close(REFERENCE, REFERENCE, INITIAL, 0.0)
    assert result.bit_equal == 3


def test_the_error_is_relative_to_the_move_not_to_the_value() -> None:
    ours = changed("w", 2, 1.0011)
    assert compare(ours, REFERENCE, INITIAL).worst.error == pytest.approx(0.1, rel=1e-2)
    with pytest.raises(AssertionError, match="w is off by"):
        assert_close(ours, REFERENCE, INITIAL, 1e-3)


def test_one_unit_in_the_last_place_is_storing_two_are_not() -> None:
    unit = np.spacing(np.float32(1.001))
    assert compare(changed("w", 0, 1.001 + unit), REFERENCE, INITIAL).worst.error == 0
    assert compare(changed("w", 0, 1.001 + unit), REFERENCE, INITIAL, ulps=0).worst.error > 1e-5
    assert compare(changed("w", 0, 1.001 + 2 * unit), REFERENCE, INITIAL).worst.error > 1e-5


def test_an_element_that_stood_still_must_stand_still() -> None:
    reference = changed("w", 1, 1.0)
    ours = {**reference, "w": reference["w"].copy()}
    ours["w"][1] = np.nextafter(np.float32(1), np.float32(2))
    assert compare(ours, reference, INITIAL).worst.error > 1e-5
    still = {**REFERENCE, "w": INITIAL["w"]}
    assert compare(changed("w", 1, 1.001), still, INITIAL).worst.error == float("inf")


def test_counters_are_exact() -> None:
    assert compare(changed("step", 0, 2), REFERENCE, INITIAL).worst.error == pytest.approx(1 / 3)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_value_that_is_not_finite_on_one_side_is_infinitely_wrong(value: float) -> None:
    bad = changed("w", 3, value)
    assert compare(bad, REFERENCE, INITIAL).worst.error == float("inf")
    assert compare(REFERENCE, bad, INITIAL).worst.error == float("inf")
    assert compare(bad, bad, INITIAL).worst.error == 0


def test_names_shapes_and_dtypes_must_agree() -> None:
    with pytest.raises(AssertionError, match=r"missing \['step'\]"):
        compare({k: v for k, v in REFERENCE.items() if k != "step"}, REFERENCE, INITIAL)
    with pytest.raises(AssertionError, match=r"extra \['more'\]"):
        compare({**REFERENCE, "more": INITIAL["w"]}, REFERENCE, INITIAL)
    with pytest.raises(AssertionError, match="float16"):
        compare({**REFERENCE, "w": REFERENCE["w"].astype(np.float16)}, REFERENCE, INITIAL)


def test_noise_is_masked_in_the_weight_and_its_slots_and_bounded() -> None:
    mask = {"w": np.array([True, False, False, False])}
    ours = changed("w", 0, 0.9995)
    ours["moments.w"][0] = -0.1
    assert compare(ours, REFERENCE, INITIAL).worst.error > 1
    result = compare(ours, REFERENCE, INITIAL, mask)
    assert result.worst.error == 0
    assert [row.noise for row in result.rows if row.name.endswith("w")] == [1, 1]
    with pytest.raises(AssertionError, match="no gradient moved by"):
        compare(changed("w", 0, 1.1), REFERENCE, INITIAL, mask)


def test_noise_is_judged_by_the_layer_and_exact_zeros_are_none() -> None:
    gradients = {"a.weight": np.array([1.0, 1e-8, 0.0]), "a.bias": np.array([1e-9]), "b.bias": np.array([1e-9])}
    mask = noise_mask([gradients], {name: np.abs(value) for name, value in gradients.items()})
    assert mask["a.weight"].tolist() == [False, True, False]
    assert mask["a.bias"].tolist() == [True]
    assert mask["b.bias"].tolist() == [False]


def test_equality_is_of_bits() -> None:
    assert_equal(REFERENCE, REFERENCE)
    with pytest.raises(AssertionError, match="w differs"):
        assert_equal(changed("w", 0, float(np.nextafter(np.float32(1.001), np.float32(2)))), REFERENCE)
