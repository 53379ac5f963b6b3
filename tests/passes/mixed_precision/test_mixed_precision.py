"""Mixed precision against native MindSpore: a file that was cast here trains as one that was exported with
``mindspore.amp.auto_mixed_precision``, bit for bit."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from boost_compile.ir.analysis.training.anatomy import anatomy
from boost_compile.ir.core.attributes import scalar_tensor
from boost_compile.ir.core.errors import Error, OptionError, PassError
from boost_compile.ir.core.graph import Node, rewire
from boost_compile.ir.core.op import Op
from boost_compile.ir.core.types import TensorType
from boost_compile.passes.framework.pipeline import parse_pipeline
from boost_compile.passes.recompute.candidates import bytes_of, forward_of
from boost_compile.tools.compile import command as compile_command
from boost_compile.tools.inspect import command as inspect_command
from boost_compile.tools.verification.data import file_batches
from boost_compile.tools.verification.gradient_error import Exact
from boost_compile.tools.verify import command as verify_command
from mindspore import amp

import boost_compile as bc
from tests.networks import CASES, Case, export, names
from tests.reference import overflowing
from tests.tools.support import shell

Exported = Callable[[str], Path]
QUICK = {
    "O1": ("mlp_adam", "lenet_bn", "shared_weights"),
    "O2": ("mlp", "lenet_bn", "gpt", "branch", "residual_in_place", "recomputed"),
    "O3": ("lenet_bn",),
}
DIFFERENT = {
    "O1": {
        "residual_nested": "AddN: gradients of a value between residual blocks meet in half precision there",
        "at_once": "MatMul: a cell that is called by another one than its owner's construct is not cast there",
        "in_turn": "MatMul: the same",
    },
    "O2": {
        "gradient_penalty": "MatMul: of second derivatives, whose forward nodes are not told",
        "loop_alone": "AddN: gradients that pass from one step of the loop to the next",
        "running_average": "ReduceMean: an average that the forward part keeps stays in float32 here",
        "meters": "Muls: the same",
        "regularized": "Square: a weight that the loss alone takes is not cast there",
        "linear_penalty": "SumExt: the same",
        "vit": "Softmax: the network casts its scores to float32 itself, which leaves no trace in a float32 file",
    },
}
DIFFERENT["O3"] = DIFFERENT["O2"] | {
    "residual_regularized": "Square: a scale of a BatchNorm, which stays in float32, is not cast for the loss there",
}
"""Networks that differ from native mixed precision, with the primitive; docs/accuracy.md shows the list."""


def native(name: str, level: str, folder: Path) -> Path:
    """The file that MindSpore exports of a network under its own mixed precision."""
    case = CASES[name]
    return export(replace(case, network=lambda: amp.auto_mixed_precision(case.network(), level)), folder)


def pipeline(case: Case, level: str) -> str:
    """What MindSpore does: it casts a loss inside of the network too, and scales none."""
    loss = "same" if case.loss is None else "float32"
    return f"mixed-precision{{level={level},loss={loss},loss_scale=false}}"


def trained(program: bc.Program, case: Case) -> tuple[list[bytes], dict[str, np.ndarray]]:
    """The losses of three cycles, and all states after them."""
    if not case.runs_on_cpu:
        program = bc.compile(program, "legalize{target=cpu}")
    session = bc.Session(program, seed=1)
    losses = [np.asarray(session.step(*batch).loss).tobytes() for batch in case.batches(3)]
    return losses, session.state()


def difference(name: str, level: str, exported: Exported, folder: Path) -> list[str]:
    """The states whose bits differ after three cycles, and "losses" where these do."""
    case = CASES[name]
    cast = bc.compile(bc.load(exported(name)), pipeline(case, level))
    losses, states = trained(cast, case)
    expected_losses, expected = trained(bc.load(native(name, level, folder)), case)
    assert expected.keys() <= states.keys()
    gc.collect()
    found = [n for n, array in expected.items() if (states[n].dtype, states[n].tobytes()) != _bits(array)]
    return found + ["losses"] * (losses != expected_losses)


def _bits(array: np.ndarray) -> tuple[np.dtype, bytes]:
    return array.dtype, array.tobytes()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Native O1 rewrites the sources of cells and leaves them in the working directory."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("level", "name"),
    [
        *((level, name) for level, cases in QUICK.items() for name in cases),
        pytest.param("O3", "gpt_sgd", marks=pytest.mark.slow),
    ],
)
def test_training_is_that_of_a_file_with_native_mixed_precision(
    level: str, name: str, exported: Exported, tmp_path: Path
) -> None:
    assert difference(name, level, exported, tmp_path) == []


def test_saved_values_are_rounded_for_the_backward_part_alone(
    exported: Exported, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The forward part keeps the bits of native mixed precision; gradients are those of values in half precision."""
    name = "recurrence_unrolled"  # MindSpore has no kernel of half precision for its Tanh
    case, source = CASES[name], bc.load(exported(name))
    native = pipeline(case, "O2")
    asked = native.replace("}", ",saved=half}")
    found = shell(capsys, compile_command, exported(name), "--passes", asked, "-o", tmp_path / "half.boost")
    assert found.code == 0, found.err
    expected_losses, expected = trained(bc.compile(source, native), case)
    losses, states = trained(bc.load(tmp_path / "half.boost"), case)
    assert losses[0] == expected_losses[0]
    assert any(states[weight].tobytes() != array.tobytes() for weight, array in expected.items())
    exact = Exact(source, file_batches(str(data_of(name, tmp_path)), next(iter(source.graphs.values())), 4))
    assert max(exact.errors(parse_pipeline(asked)).values()) < 0.01


@pytest.mark.slow
@pytest.mark.parametrize("level", ["O1", "O2", "O3"])
def test_nine_in_ten_networks_train_as_natively(level: str, exported: Exported, tmp_path: Path) -> None:
    """Of those that MindSpore exports at this level, that are in float32 and that have kernels here."""
    equal, different = [], []
    for name in names(without=("half",)):
        try:
            bits = difference(name, level, exported, tmp_path)
        except (AttributeError, TypeError, NameError, ImportError, Error):
            continue  # MindSpore does not export it at this level, or has no kernel for its optimizer
        (different if bits else equal).append(name)
    assert set(different) == set(DIFFERENT[level])
    assert len(equal) >= 9 * len(different)


def kinds(program: bc.Program, name: str) -> set[str]:
    """The element types that the nodes of one primitive return."""
    nodes = (n for g in program.graphs.values() for n in g.all_nodes() if n.op.name == name)
    return {str(n.type.dtype) for n in nodes if isinstance(n.type, TensorType)}


def test_casts_are_shared_and_never_in_a_row(exported: Exported) -> None:
    for name in ("gpt", "resnet18", "shared_weights", "lenet_bn"):
        program = bc.compile(bc.load(exported(name)), "mixed-precision{level=O2,loss_scale=false}")
        (graph,) = program.graphs.values()
        casts = [n for n in graph if n.op.name == "Cast" and "mixed-precision" in (n.origin.passes if n.origin else ())]
        assert len({(n.operand(0), str(n.type)) for n in casts}) == len(casts)
        assert not [n for n in casts if n.operand(0) in casts]


def test_an_island_of_float32_costs_the_casts_of_its_border(exported: Exported) -> None:
    source = bc.load(exported("gpt"))
    whole = bc.compile(source, "mixed-precision{level=O2,loss_scale=false}")
    island = bc.compile(source, "mixed-precision{level=O2,loss_scale=false,keep=0-Block/down-Dense}")
    assert kinds(whole, "BiasAdd") == {"float16"}
    assert kinds(island, "BiasAdd") == {"float16", "float32"}
    kept = [m for m in island.reports[0].misses if "keep names its scope" in m.reason]
    assert any("MatMul" in m.site for m in kept)
    count = [report.statistics["casts"] for report in (whole.reports[0], island.reports[0])]
    # Two casts of its weights and two of their gradients go; one into it and one out of it come, forward and backward.
    assert count[1] <= count[0] + 1


def test_a_dynamic_loss_scale_comes_along(exported: Exported) -> None:
    case = CASES["mlp"]
    program = bc.compile(bc.load(exported("mlp")), "mixed-precision")
    assert [r.name for r in program.reports] == ["mixed-precision", "loss-scale", "overflow-check"]
    session = bc.Session(program)
    results = [session.step(*batch) for batch in case.batches(3)]
    assert not any(r.overflow for r in results)
    groups = bc.compile(bc.load(exported("mlp")), "mixed-precision,group-loss-scale{groups=2}")
    assert [r.name for r in groups.reports] == ["mixed-precision", "group-loss-scale", "overflow-check"]
    checked = bc.compile(bc.load(exported("mlp")), "overflow-check")
    assert [r.name for r in bc.compile(checked, "mixed-precision").reports][1:] == ["mixed-precision", "loss-scale"]
    alone = bc.compile(bc.load(exported("mlp")), "mixed-precision{loss_scale=false}")
    assert [r.name for r in alone.reports] == ["mixed-precision"]
    own = bc.compile(bc.load(exported("scaled_dynamic")), "mixed-precision,legalize{target=cpu}")
    assert "loss-scale" not in [r.name for r in own.reports]


def test_an_overflow_at_any_micro_batch_is_survived(exported: Exported) -> None:
    """A cycle trains as if the micro-batches that overflow were not there, bit for bit; without others not at all."""
    case = CASES["mlp_adam"]
    asked = "mixed-precision,gradient-accumulation{steps=4},overflow-check{policy=skip-micro}"
    program = bc.compile(bc.load(exported("mlp_adam")), asked)
    trained = [name for name, variable in program.state.items() if variable.role in ("weight", "slot")]
    session = bc.Session(program)
    initial = session.state()
    good = case.batches(4)
    bad = [overflowing(batch) for batch in good]
    for dropped in ({0}, {1}, {2}, {3}, {0, 3}, {0, 1, 2, 3}):
        ends = []
        for batches in (
            [bad[k] if k in dropped else good[k] for k in range(4)],
            [good[k] for k in range(4) if k not in dropped],
        ):
            session.load_state(initial)
            for batch in batches:
                session.step(*batch)
            session.flush()
            ends.append(session.state())
        assert all(np.isfinite(array).all() for array in ends[0].values() if array.dtype.kind == "f")
        assert [n for n in trained if ends[0][n].tobytes() != ends[1][n].tobytes()] == []
        moved = any(ends[0][n].tobytes() != initial[n].tobytes() for n in trained)
        assert moved == (len(dropped) < 4)


@pytest.mark.parametrize("name", ["mlp_half_weights", "lenet_mixed"])
def test_a_file_in_half_precision_becomes_one_in_float32(name: str, exported: Exported) -> None:
    case = CASES[name]
    half = bc.load(exported(name))
    program = bc.compile(half, "mixed-precision{level=O0}")
    (graph,) = program.graphs.values()
    assert not [n for n in graph.all_nodes() if isinstance(n.type, TensorType) and "16" in str(n.type.dtype)]
    assert "Cast" not in [n.op.name for n in graph]
    losses = []
    for one in (half, program):
        session = bc.Session(one)
        inputs = [v.type.dtype for v in next(iter(one.graphs.values())).inputs]
        fits = [[a.astype(str(t)) for a, t in zip(b, inputs, strict=True)] for b in case.batches(2)]
        losses.append([float(session.step(*b).loss) for b in fits])
    np.testing.assert_allclose(losses[1], losses[0], rtol=2e-2)


def test_bfloat16_is_for_ascend(exported: Exported) -> None:
    source = bc.load(exported("lenet_bn"))
    program = bc.compile(source, "mixed-precision{dtype=bfloat16}", target="ascend")
    assert kinds(program, "MatMul") == kinds(program, "Conv2D") == {"bfloat16"}
    # MindSpore refuses these in bfloat16: tests/devices runs such programs in simulation.
    refused = [n for n in program.graphs["step"].all_nodes() if n.op.name.startswith(("BatchNorm", "MaxPool"))]
    assert {str(n.operand(0).type.dtype) for n in refused} == {"float32"}
    assert any("MindSpore takes no bfloat16 for BatchNorm" in m.reason for m in program.reports[0].misses)
    assert [r.name for r in program.reports] == ["mixed-precision"], "its range needs no loss scale"
    for target in ("cpu", "gpu"):
        with pytest.raises(PassError, match=f"no bfloat16 kernels for products and convolutions on {target}"):
            bc.compile(source, "mixed-precision{dtype=bfloat16}", target=target)


def test_where_half_precision_is_kept_anyway_the_report_says_so(exported: Exported) -> None:
    found = bc.compile(bc.load(exported("mlp")), "mixed-precision{saved=half}", target="gpu")
    assert "on gpu half precision is kept anyway" in found.reports[0].misses[0].reason
    with pytest.raises(OptionError, match="level=O0 makes everything float32"):
        parse_pipeline("mixed-precision{level=O0,saved=half}")


@pytest.mark.parametrize(("keep", "rounded"), [("*hidden-Dense*", 1), ("*hidden-Dense*|*-ReLU*", 0)])
def test_where_nothing_is_rounded_for_the_backward_part_the_report_says_so(
    exported: Exported, keep: str, rounded: int
) -> None:
    found = bc.compile(bc.load(exported("mlp")), f"mixed-precision{{keep={keep},saved=half}}").reports[0]
    assert found.statistics["values kept rounded"] == rounded
    assert any("saved=half changes nothing" in miss.reason for miss in found.misses) == (not rounded)


# -- a bound on the gradients ----------------------------------------------------------------------------------------


def data_of(name: str, folder: Path) -> Path:
    """Four micro-batches of a network as a file."""
    batches = CASES[name].batches(4)
    path = folder / "train.npz"
    np.savez(path, **{f"input{i}": np.concatenate(arrays) for i, arrays in enumerate(zip(*batches, strict=True))})
    return path


def test_a_bound_keeps_what_would_break_it_in_float32(
    exported: Exported, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, source = data_of("mlp", tmp_path), bc.load(exported("mlp"))
    exact = Exact(source, file_batches(str(data), next(iter(source.graphs.values())), 4))
    free = exact.errors(parse_pipeline("mixed-precision"))
    bound = 0.8 * max(free.values())
    found = shell(capsys, compile_command, exported("mlp"), "--passes", f"mixed-precision{{error={bound},data={data}}}",
                  "-o", tmp_path / "mlp.boost")  # fmt: skip
    assert found.code == 0, found.err
    assert "with it in half precision the gradient of" in found.out
    program = bc.load(tmp_path / "mlp.boost")
    (mixed, *_) = parse_pipeline(program.pipeline)
    assert mixed.options()["data"] is None, "what was found is recorded, and not how"
    assert 0 < program.reports[0].statistics["cells kept for error"] < 3
    assert max(exact.errors([mixed]).values()) <= bound
    verified = bc.verify(source, program, data=str(data))
    result = verified.result("gradients in half precision")
    assert (result.status, verified.verified) == ("passed", True), result
    assert result.deviation is not None
    assert result.deviation.tolerance_relative == pytest.approx(bound)


def test_a_weight_is_judged_in_the_micro_batches_in_which_it_has_a_gradient(exported: Exported, tmp_path: Path) -> None:
    """Which branch is taken changes from batch to batch; in the other one a bias has rounding for a gradient."""
    data, source = data_of("branch_state", tmp_path), bc.load(exported("branch_state"))
    program = bc.compile(source, f"mixed-precision{{error=0.01,data={data}}}")
    assert program.reports[0].statistics["cells kept for error"] == 0


def exported_for_ranks(program: bc.Program) -> bc.Program:
    """The file as an export for two ranks would be: each gradient is summed over them, and halved."""
    (graph,) = program.graphs.values()
    of = {gradient: info.name for info in anatomy(graph).weights for gradient in info.gradient}
    for gradient in of:
        taken = [(user, i) for user, i in gradient.use_sites() if user.op.name == "ApplyMomentum"]
        with graph.inserting_after(gradient):
            options = {"group": "hccl_world_group", "op": "sum", "fusion": 1}
            summed = graph.create(Op("AllReduce", options), [gradient], gradient.type)
            half = graph.constant(scalar_tensor("float32", 0.5))
            mean = graph.create("Mul", [summed, half], gradient.type)
        rewire(taken, mean)
    graph.sort()
    assert [n.op.name for n in graph].count("AllReduce") == len(of) == 4
    return program


def test_a_file_exported_for_ranks_is_bounded_as_one_for_a_single_process(exported: Exported, tmp_path: Path) -> None:
    asked = f"mixed-precision{{error=0.0006,data={data_of('mlp', tmp_path)}}}"
    alone = bc.compile(bc.load(exported("mlp")), asked)
    ranks = bc.compile(exported_for_ranks(bc.load(exported("mlp"))), asked)
    for name in ("gradient errors", "cells kept for error"):
        assert ranks.reports[0].statistics[name] == alone.reports[0].statistics[name]
    assert alone.reports[0].statistics["cells kept for error"] == 1
    types = {
        str(n.type.dtype) for n in ranks.graphs["step"] if n.op.name == "AllReduce" and isinstance(n.type, TensorType)
    }
    assert types == {"float32"}


def test_a_broken_bound_is_found_and_the_pass_named(exported: Exported) -> None:
    source = bc.load(exported("mlp"))
    found = bc.verify(source, bc.compile(source, 'mixed-precision{error=0.0001,keep=""}'), quick=True)
    assert found.result("gradients in half precision").status == "failed"
    assert found.guilty is not None
    assert found.guilty.name == "mixed-precision"


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("mixed-precision{error=0.01}", "error=0.01 needs data=FILE.npz to measure gradients on"),
        ("mixed-precision{data=x.npz}", "data=FILE is for error=BOUND"),
        ("mixed-precision{error=0.01,data=nowhere.npz}", "nowhere.npz"),
        ("mixed-precision{error=0.000001,data=train.npz}", "leaves no cell in half precision"),
        ("mixed-precision{error=0.01,data=large.npz}", "overflows at a loss scale of 1 on this data. So scale"),
    ],
)
def test_what_cannot_be_measured_is_one_error(
    asked: str, message: str, exported: Exported, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with np.load(data_of("mlp", tmp_path)) as arrays:
        large = {name: a * np.float32(1e30) if a.dtype.kind == "f" else a for name, a in arrays.items()}
        np.savez(tmp_path / "large.npz", **large)
    found = shell(capsys, compile_command, exported("mlp"), "--passes", asked, "-o", tmp_path / "mlp.boost")
    assert (found.code, (tmp_path / "mlp.boost").exists()) == (2, False)
    assert message in " ".join(found.err.split())


def test_data_that_overflows_in_half_precision_alone_is_named(
    exported: Exported, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """BatchNorm makes large data small in float32. What is not finite there either is no fault of half precision."""
    path, program = exported("lenet_bn"), tmp_path / "half.boost"
    bc.compile(bc.load(path), "mixed-precision").save(program)
    overflows, original = "at a loss scale of 1 too: keep in float32 what overflows", "with this data the original's"
    for factor, said in (1e6, overflows), (np.inf, original):
        with np.load(data_of("lenet_bn", tmp_path)) as arrays:
            given = {n: a * np.float32(factor) if a.dtype.kind == "f" else a for n, a in arrays.items()}
            np.savez(tmp_path / "given.npz", **given)
        found = shell(capsys, verify_command, path, program, "--data", tmp_path / "given.npz")
        assert found.code == 2
        assert said in found.err


def kept_bytes(program: bc.Program) -> int:
    """What the forward part keeps for the backward part, weights and inputs apart."""
    (graph,) = program.graphs.values()
    forward = forward_of(graph, program.target)
    return sum(bytes_of(node) for node in forward.memory(forward.wanted) if not _reads(node))


def _reads(node: Node) -> bool:
    """Whether a node is the cast of a weight."""
    source = node.operand(0) if node.op.name == "Cast" else None
    return isinstance(source, Node) and source.op.name == "Load"


@pytest.mark.parametrize(
    "name",
    ["mlp", "lenet_bn", "gpt", "lstm", "vit",
     *(pytest.param(name, marks=pytest.mark.slow) for name in ("mobilenet_v2", "resnet18", "resnet50"))],
)  # fmt: skip
def test_the_backward_part_takes_at_most_two_thirds_of_the_bytes(name: str, exported: Exported) -> None:
    """Natively a value that a normalisation takes is kept as its float32 cast."""
    source = bc.load(exported(name))
    half = bc.compile(source, "mixed-precision{level=O2,loss_scale=false}")
    assert kept_bytes(half) <= 0.65 * kept_bytes(source)


def test_memory_and_operations_by_type_are_shown(
    exported: Exported, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = bc.compile(bc.load(exported("gpt")), "mixed-precision{loss_scale=false}")
    program.save(str(tmp_path / "gpt.boost"))
    plain = shell(capsys, inspect_command, exported("gpt"), "--memory", "--format", "json")
    mixed = shell(capsys, inspect_command, tmp_path / "gpt.boost", "--memory", "--format", "json")
    before, after = (next(iter(found.document["graphs"].values())) for found in (plain, mixed))
    assert set(before["types"]) <= {"float32", "int32", "bool"}
    work = {name: of_type["flops"] for name, of_type in after["types"].items()}
    assert work["float16"] > 0.7 * sum(work.values())
    assert sum(of_type["bytes"] for of_type in after["types"].values()) < sum(
        of_type["bytes"] for of_type in before["types"].values()
    )
    assert "float16" in shell(capsys, inspect_command, tmp_path / "gpt.boost", "--memory").out
