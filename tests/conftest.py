"""Fixtures that every test may use: exported training graphs, written once and kept between runs and workers."""

from __future__ import annotations

import fcntl
import gc
import hashlib
import multiprocessing
import os
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import hypothesis
import pytest

from tests.fast import FastModule, TextIR, is_fast, stand_in_for_mindspore
from tests.text_ir import FILES

# The same examples in every run, however busy the machine is; `--hypothesis-profile=default` draws others.
hypothesis.settings.register_profile(
    "sure", derandomize=True, database=None, deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("sure")
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX2")
os.environ.setdefault("BOOST_COMPILE_VERIFY_EACH", "1")  # passes/framework/manager.py
os.environ.setdefault("BOOST_COMPILE_VERIFY_LOWERED", "1")  # runtime/lowering/lower.py


def export_key() -> str:
    """Changes with MindSpore's version and with any source of the zoo."""
    from importlib.metadata import version

    digest = hashlib.sha256(version("mindspore").encode())
    for source in sorted((Path(__file__).parent / "networks").glob("*.py")):
        digest.update(source.name.encode() + source.read_bytes())
    return digest.hexdigest()[:16]


def zoo_folder() -> Path:
    """Where exported files are kept between runs."""
    folder = Path(tempfile.gettempdir()) / f"boost-compile-zoo-{os.getuid()}" / export_key()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder


def export_once(name: str, folder: Path) -> Path:
    """The exported file of a case in `folder`; a lock keeps two processes from writing it at once.

    Raises KeyError for a name that is not in the zoo.
    """
    path = folder / f"{name}.mindir"
    if path.exists():
        return path
    from tests.networks import CASES, export

    if name not in CASES:
        raise KeyError(f"no case {name!r} in tests.networks.CASES; there are {', '.join(sorted(CASES))}")
    with open(folder / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            with tempfile.TemporaryDirectory(dir=folder) as scratch:
                try:
                    written = export(CASES[name], Path(scratch))
                except RuntimeError:
                    # MindSpore may have released parsed code that this network shares with earlier ones of the process
                    # ("The input is null, … released_node"); a process of its own has no earlier ones.
                    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
                        written = pool.submit(_export_by_name, name, Path(scratch)).result()
                written.replace(path)
    return path


def _export_by_name(name: str, folder: Path) -> Path:
    from tests.networks import CASES, export

    return export(CASES[name], folder)


LONGEST = [
    *("test_data_parallel", "test_linear_cost", "test_native", "test_pages", "test_accepted", "test_adasum"),
    *(
        "test_devices",
        "test_live",
        "test_run_ranks",
        "test_prediction",
        "test_session",
        "test_demo",
        "test_run",
        "test_reference",
    ),
    *("test_mutants", "test_linearity_by_execution", "test_backend", "test_run_interrupted", "test_models"),
    *("test_less_bn", "test_gradient_accumulation", "test_random_programs", "test_legalize", "test_held_out"),
    *("test_crash", "test_clip_gradients", "test_group_loss_scale", "test_boundary_combinations", "test_loss_scale"),
    *("test_normalised_head", "test_overflow_check", "test_gradient_freeze", "test_dim_reduce", "test_ranks"),
    *("test_auto_boost", "test_gradient_centralization", "test_shard_optimizer"),
]
"""Files that take long start first, lest one be left over: each is one worker's (`--dist loadfile`), so that what its
tests share is made once. Those that start ranks stand apart, so that two of them seldom run at once."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--unit", action="store_true", help="only what is fast: tests that do without MindSpore")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("unit"):
        stand_in_for_mindspore()


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    return FastModule.from_parent(parent, path=module_path) if parent.config.getoption("unit") else None


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.File | None:
    return TextIR.from_parent(parent, path=file_path) if file_path in FILES else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("unit"):
        left_out = [item for item in items if not is_fast(item)]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if is_fast(item)]
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.stem, len(places)))


def pytest_collection_finish() -> None:
    """MindSpore collects garbage before each compilation; what was imported by now is never any."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def exported() -> Callable[[str], Path]:
    """`exported("lenet_bn")` is the path of that case's MindIR; read-only, shared by all tests."""
    folder = zoo_folder()
    return lambda name: export_once(name, folder)
