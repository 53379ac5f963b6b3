"""The tests mirror the tree: each module of ir/ and passes/ has a file of tests of its name, where it stands.

ir/analysis/training/loss.py is held by tests/ir/analysis/training/test_loss.py, or by a text-IR test loss.ir there.
`ELSEWHERE` lists what is tested in another place, and why.
"""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MODULES = sorted(
    path.relative_to(ROOT)
    for room in ("ir", "passes")
    for path in (ROOT / room).rglob("*.py")
    if path.name != "__init__.py"
)

ELSEWHERE = {
    # Rules, one for each operator: ONNX's own tests run each of them.
    "ir/formats/onnx": "tests/ir/formats/onnx/test_backend.py",
    # Tables: held against MindSpore's primitives, all at once.
    "ir/core/primitives": "tests/ir/core/test_primitives.py",
    # Parts of one reader or writer: what goes in comes out again, or is refused.
    "ir/formats/mindir": "tests/ir/formats/mindir/test_round_trip.py",
    "ir/formats/python": "tests/ir/formats/python/test_source.py",
    "ir/formats/storage": "tests/ir/formats/storage/test_directory.py",
    "ir/text": "tests/ir/text/test_text.py",
    "ir/files": "tests/ir/formats/storage/test_damage.py",
    # The batch is found and changed in one sweep.
    "ir/analysis/batch": "tests/passes/batch_size.ir",
    "ir/rewrite/batch_size": "tests/passes/batch_size.ir",
    # The network as it predicts is judged by what it predicts.
    "ir/rewrite/evaluation": "tests/ir/rewrite/evaluation/test_network.py",
    # They are lowerings of the runtime.
    "ir/rewrite/cpu": "tests/runtime/lowering/broadcasting.ir",
    "ir/rewrite/new_weight.py": "tests/passes/normalised_head.ir",
    "ir/rewrite/ranks": "tests/passes/data_parallel.ir",
    "ir/analysis/derivative": "tests/ir/analysis/derivative/linearity.ir",
    "ir/analysis/training/gradient_sources.py": "tests/ir/analysis/training/test_anatomy.py",
    "ir/analysis/training/update_side.py": "tests/ir/analysis/training/test_anatomy.py",
    "ir/rewrite/scale_seeds.py": "tests/passes/loss_scale.ir",
    # Differences are found by parts that make no sense alone.
    "ir/analysis/compare": "tests/ir/analysis/compare/test_diff.py",
    "ir/verify/problems.py": "tests/ir/verify/test_verifier.py",
    # What a graph is made of: every test of a graph runs it, these in particular.
    "ir/core": "tests/ir/core/test_graph.py",
    # A proof is judged as a whole: what is proved, and that no fault is.
    "ir/proof": "tests/ir/proof/test_prover.py",
    "ir/symbolic": "tests/ir/proof/test_prover.py",
    # One pass in several files.
    "passes/data_parallel": "tests/passes/data_parallel.ir",
    "passes/step/freezing.py": "tests/passes/gradient_freeze.ir",
    "passes/monitor": "tests/passes/monitor.ir",
    "passes/step/matching.py": "tests/passes/weight_average.ir",
    "passes/step/monitored.py": "tests/passes/test_monitor.py",
    "passes/gradient_accumulation": "tests/passes/gradient_accumulation.ir",
    "passes/normalised_head": "tests/passes/normalised_head.ir",
    "passes/lora": "tests/passes/lora.ir",
    "passes/step/dense_layers.py": "tests/passes/normalised_head.ir",
    "passes/legalize": "tests/passes/legalize/legalize.ir",
    "passes/mixed_precision/widen.py": "tests/passes/mixed_precision/test_narrow.py",
    "passes/recompute": "tests/passes/recompute/test_recompute.py",
    "passes/tag_gradient_centralization.py": "tests/passes/lower_gradient_centralization.ir",
    "passes/configuration": "tests/passes/configuration/test_boost_document.py",
    "passes/framework": "tests/passes/framework/test_manager.py",
    "passes/step/clipping.py": "tests/passes/clip_gradients.ir",
    "passes/step/turns.py": "tests/passes/test_several_gradients.py",
    "passes/step/each_micro_batch.py": "tests/passes/test_shard_optimizer.py",
    "passes/step/rates.py": "tests/passes/schedule.ir",
    "passes/step/updates.py": "tests/passes/weight_average.ir",
    "passes/replace_optimizer": "tests/passes/test_own_optimizers.py",
    "ir/rewrite/graft.py": "tests/passes/replace_optimizer.ir",
    # Names alone.
    "passes/step/names.py": "tests/test_names.py",
}


def own(module: Path) -> list[Path]:
    folder = ROOT / "tests" / module.parent
    return [path for path in (folder / f"test_{module.stem}.py", folder / f"{module.stem}.ir") if path.exists()]


def elsewhere(module: Path) -> str | None:
    """The closest entry: that of the module, else of its folder."""
    return next((str(p) for p in (module, *module.parents) if str(p) in ELSEWHERE), None)


@pytest.mark.parametrize("module", MODULES, ids=str)
def test_a_module_has_its_tests(module: Path) -> None:
    assert own(module) or elsewhere(module), f"no tests/{module.parent}/test_{module.stem}.py or {module.stem}.ir"


@pytest.mark.parametrize("entry", ELSEWHERE)
def test_an_exception_is_needed_and_true(entry: str) -> None:
    assert (ROOT / ELSEWHERE[entry]).exists()
    assert (ROOT / entry).exists()
    assert any(elsewhere(module) == entry and not own(module) for module in MODULES), "needed no more"
