"""ONNX's own tests of the operators that the reader has rules for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.ir.formats.onnx.backend import cases, judge, judged
from tests.ir.formats.onnx.report import DOCUMENT

SAMPLE = (
    "test_averagepool_2d_pads_count_include_pad",
    "test_batchnorm_example",
    "test_convtranspose_group_2",
    "test_einsum_batch_matmul",
    "test_gather_elements_negative_indices",
    "test_gru_seq_length",
    "test_layer_normalization_4d_axis1",
    "test_lstm_with_peepholes",
    "test_maxpool_2d_dilations",
    "test_pow_bcast_array",
    "test_reflect_pad",
    "test_resize_upsample_scales_cubic_align_corners",
    "test_slice_neg_steps",
    "test_softmax_axis_1",
    "test_top_k_smallest",
)


@pytest.mark.parametrize("name", SAMPLE)
def test_sample(name: str, tmp_path: Path) -> None:
    outcome = judge(cases()[name], tmp_path)
    assert outcome.status == "passed", outcome


@pytest.mark.slow
def test_all_but_those_that_the_documentation_names(tmp_path: Path) -> None:
    """docs/onnx-operators.md is what tests/ir/formats/onnx/report.py measured."""
    listed = set(re.findall(r"^\| (test_\w+) \|", DOCUMENT.read_text(), re.MULTILINE))
    failed = {
        name: str(outcome)
        for name, case in cases().items()
        if judged(case) and (outcome := judge(case, tmp_path)).status != "passed"
    }
    assert set(failed) == listed, {name: why for name, why in failed.items() if name not in listed}
