"""No test depends on time, load or chance, as far as its text tells: waits have conditions, draws have seeds."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
KNOWN = {
    "waiting.py": "waits for conditions",
    "tools/holding.py": "waits for a signal or a file",
    "tools/remote_shell.py": "the limit is that of a connection on this machine",
    "crash/killing.py": "whatever it interrupts, the old file or the new one stands there",
    "crash/training.py": "run by hand, with the seed that it prints",
    "devices/bad_worker.py": "sleeps for ever, as far as its test can tell",
    "random_programs/shrinking.py": "makes failures smaller; no test asks how far",
    "networks/": "built behind seed_everything (networks/case.py)",
    "random_programs/layers.py": "built behind seed_everything (networks/case.py)",
    "passes/test_lora.py": "built behind seed_everything (networks/case.py)",
}
"""Files, or folders, that do what no other may; and why that is sure."""
WORDS = re.compile(r"sleep\(|timeout ?=|Random\(|np\.random")
SEEDING = {"seed", "default_rng", "Generator", "RandomState"}


def faults(text: str) -> Iterator[tuple[int, str]]:
    if not WORDS.search(text):
        return
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        if called in ("time.sleep", "sleep"):
            yield node.lineno, "sleeps: wait_until of tests/waiting.py waits for a condition"
        if any(k.arg == "timeout" and isinstance(k.value, ast.Constant) and k.value.value for k in node.keywords):
            yield node.lineno, "has a limit of time: PATIENCE of tests/waiting.py is one that no busy machine reaches"
        *where, name = called.split(".")
        if where[-2:] == ["np", "random"] and (name not in SEEDING or not node.args):
            yield node.lineno, "draws without a seed: np.random.default_rng(0)"
        if called in ("random.Random", "Random") and not node.args:
            yield node.lineno, "draws without a seed: random.Random(0)"


def test_no_test_sleeps_has_a_limit_or_draws_without_a_seed() -> None:
    found = []
    for path in sorted(HERE.rglob("*.py")):
        name = path.relative_to(HERE).as_posix()
        if not name.startswith(tuple(KNOWN)):
            found += [f"tests/{name}:{line}: {fault}" for line, fault in faults(path.read_text("utf-8"))]
    assert found == []


def test_what_is_known_is_there_and_does_that() -> None:
    for name in KNOWN:
        path = HERE / name
        files = path.rglob("*.py") if path.is_dir() else [path]
        assert any(any(faults(file.read_text("utf-8"))) for file in files), f"{name}: no exception any more"


def test_each_fault_is_seen() -> None:
    for text in (
        "time.sleep(1)", "run(x, timeout=3)", "np.random.randn(2)", "np.random.default_rng()", "random.Random()",
    ):  # fmt: skip
        assert list(faults(text)), text
    for text in (
        "wait_until(there, '')",
        "run(x, timeout=PATIENCE)",
        "np.random.default_rng(0)",
        "random.Random(seed)",
    ):
        assert not list(faults(text)), text
