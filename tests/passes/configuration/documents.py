"""Documents of mindspore.boost, and what they are translated to."""

from __future__ import annotations

import warnings
from typing import Any

from boost_compile.passes import parse_pipeline
from boost_compile.passes.configuration.boost_document import BoostNote, from_boost_config
from boost_compile.passes.framework.manager import in_stages
from boost_compile.passes.framework.registry import find

Document = dict[str, Any]
GC = {"gradient-centralization"}
EXAMPLE: Document = {
    "boost": {
        "mode": "auto",
        "less_bn": False,
        "grad_freeze": False,
        "adasum": False,
        "grad_accumulation": False,
        "dim_reduce": False,
        "loss_scale_group": False,
    },
    "common": {"gradient_split_groups": [50, 100], "device_number": 8},
    "less_bn": {"fn_flag": True, "gc_flag": True},
    "grad_freeze": {"param_groups": 10, "freeze_type": 1, "freeze_p": 0.7, "total_steps": 65536},
    "dim_reduce": {
        "rho": 0.55,
        "gamma": 0.9,
        "alpha": 0.001,
        "sigma": 0.4,
        "n_components": 32,
        "pca_mat_path": None,
        "weight_load_dir": None,
        "timeout": 1800,
    },
}
"""The document in the documentation of AutoBoost."""
BASIS = {"pca_mat_path": "basis.npy"}


def manual(*switches: str, **sections: Document) -> Document:
    return {"boost": {"mode": "manual", **dict.fromkeys(switches, True)}, **sections}


def translated(document: Document | None = None, level: str = "O0") -> dict[str, dict[str, Any]]:
    """Pass and options; without the notes, which have tests of their own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BoostNote)
        return {p.name: p.options() for p in parse_pipeline(from_boost_config(document, level))}


def notes(document: Document, level: str = "O0") -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        from_boost_config(document, level)
    assert all((w.category, w.filename) == (BoostNote, __file__) for w in caught)
    return [str(w.message) for w in caught]


def ran(names: set[str]) -> set[str]:
    """The passes that run for those of these names."""
    return {p.name for p in in_stages([find(name)() for name in names & GC])} | names - GC
