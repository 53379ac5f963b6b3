"""ONNX's own tests of the operators that the reader has rules for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.ir.formats.onnx.backend import cases, judge, judged
from tests.ir.formats.onnx.report import DOCUMENT

SAMPLE = (
    ("averagepool", "test_averagepool_2d_pads_count_include_pad"),
    ("batch_normalization", "test_batchnorm_example"),
    ("convtranspose", "test_convtranspose_group_2"),
    ("einsum", "test_einsum_batch_matmul"),
    ("gatherelements", "test_gather_elements_negative_indices"),
    ("gru", "test_gru_seq_length"),
    ("layernormalization", "test_layer_normalization_4d_axis1"),
    ("lstm", "test_lstm_with_peepholes"),
    ("maxpool", "test_maxpool_2d_dilations"),
    ("pow", "test_pow_bcast_array"),
    ("pad", "test_reflect_pad"),
    ("resize", "test_resize_upsample_scales_cubic_align_corners"),
    ("slice", "test_slice_neg_steps"),
    ("softmax", "test_softmax_axis_1"),
    ("topk", "test_top_k_smallest"),
)


@pytest.mark.parametrize(("module", "name"), SAMPLE)
def test_sample(module: str, name: str, tmp_path: Path) -> None:
    outcome = judge(cases(module)[name], tmp_path)
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
