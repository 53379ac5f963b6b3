"""Sessions of an untouched training graph against the native training cell, and what a step accepts."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
import tempfile

import mindspore as ms
import numpy as np
import pytest
from boost_compile.ir.text import parse_program
from boost_compile.runtime.data.inputs import to_tensors
from boost_compile.runtime.engine import engine

import boost_compile as bc
from tests.native import train_steps
from tests.networks import CASES
from tests.runtime.training.support import assert_same_state

# One for each way in which state is touched: fused and decomposed optimizers, statistics, control flow, half weights.
TRAINED_LIKE_NATIVE = [
    "mlp", "mlp_adam", "mlp_half_weights", "lenet_bn", "lenet_bn_sgd", "branch", "loop", "two_inputs", "gpt_tied",
]  # fmt: skip


@pytest.fixture
def mlp(exported) -> bc.Session:
    return bc.Session(bc.load(exported("mlp")))


@pytest.mark.parametrize("name", TRAINED_LIKE_NATIVE)
def test_untouched_program_trains_as_the_native_cell_bit_for_bit(exported, name):
    batches = CASES[name].batches(4)
    losses, state = train_steps(name, batches)
    session = bc.Session(bc.load(exported(name)))
    results = [session.step(*batch) for batch in batches]
    assert [r.loss for r in results] == losses
    assert all(r.updated and r.graph == "step" and r.overflow is None and r.loss_scale is None for r in results)
    assert_same_state(session.state(), state)


def test_sessions_of_one_program_share_nothing(exported):
    program = bc.load(exported("lenet_bn"))
    initial = {name: variable.initial.copy() for name, variable in program.state.items()}
    first, second = bc.Session(program), bc.Session(program)
    batches = CASES["lenet_bn"].batches(3)
    losses = [first.step(*batch).loss for batch in batches]
    assert_same_state(second.state(), initial)
    assert [second.step(*batch).loss for batch in batches] == losses
    assert_same_state({name: variable.initial for name, variable in program.state.items()}, initial)


def test_state_is_a_copy(mlp):
    before = mlp.state()
    kept = {name: value.copy() for name, value in before.items()}
    mlp.step(*CASES["mlp"].batches(1)[0])
    assert_same_state(before, kept)
    assert (mlp.state()["hidden.weight"] != kept["hidden.weight"]).any()


def test_losses_may_be_read_late(mlp, exported):
    batches = CASES["mlp"].batches(5)
    late = [mlp.step(*batch) for batch in batches]
    other = bc.Session(bc.load(exported("mlp")))
    assert [r.loss for r in late] == [other.step(*batch).loss for batch in batches]


def test_the_caller_may_reuse_its_buffers(mlp):
    x, y = CASES["mlp"].batches(1)[0]
    kept = x.copy(), y.copy()
    tensors = to_tensors(mlp.consumer, (x, y))
    x[...] = 0
    y[...] = 0
    for tensor, array in zip(tensors, kept, strict=True):
        np.testing.assert_array_equal(tensor.asnumpy(), array)


def test_inputs_may_be_tensors_lists_and_integers_of_another_width(exported):
    x, y = CASES["mlp"].batches(1)[0]
    program = bc.load(exported("mlp"))
    expected = bc.Session(program).step(x, y).loss
    for inputs in [
        (ms.Tensor(x), ms.Tensor(y)),
        (x, y.astype(np.int64)),
        (x.tolist(), y.tolist()),
        (np.asfortranarray(x), y),
    ]:
        assert bc.Session(program).step(*inputs).loss == expected


def test_an_open_batch_dimension_takes_any_size(exported):
    session = bc.Session(bc.load(exported("mlp_dynamic_batch")))
    x, y = CASES["mlp"].batch(np.random.default_rng(0), 7)
    fixed = bc.Session(bc.load(exported("mlp")))
    assert session.step(x[:4], y[:4]).loss == pytest.approx(fixed.step(x[:4], y[:4]).loss, rel=1e-6)
    assert np.isfinite(session.step(x, y).loss)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x, y: (x,), "takes 2 inputs .* got 1"),
        (lambda x, y: (x, y, y), "takes 2 inputs .* got 3"),
        (
            lambda x, y: (x[:3], y),
            r"got shape \[3, 8\]\. The graph is made for a micro-batch of 4: .* export or capture",
        ),
        (lambda x, y: (x[0], y), "batch dimension is missing"),
        (lambda x, y: (x[:, :7], y), "got shape \\[4, 7\\]"),
        (lambda x, y: (x.astype(np.float64), y), "takes float32, got float64"),
        (lambda x, y: (x.astype(np.int32), y), "takes float32, got int32"),
        (lambda x, y: (x, y.astype(np.float32)), "takes int32, got float32"),
        (lambda x, y: (x, y > 1), "takes int32, got bool"),
        (lambda x, y: (x, y.astype(np.int64) + 2**33), "do not fit"),
        (lambda x, y: (x, ms.Tensor(y.astype(np.float32))), "takes int32, got float32"),
        (lambda x, y: (x, [[1], [2, 3]]), "rows of different lengths"),
        (lambda x, y: (x, None), "got shape \\[\\]"),
    ],
)
def test_wrong_inputs_are_one_clear_error_and_change_nothing(mlp, change, message):
    before = mlp.state()
    with pytest.raises(bc.Error, match=message):
        mlp.step(*change(*CASES["mlp"].batches(1)[0]))
    assert_same_state(mlp.state(), before)


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda session: session.load(None), "read from a file, or from arrays by name, and not from a NoneType"),
        (lambda session: session.save(None), "written to a path, and not to a NoneType"),
        (lambda session: session.program.save(None), "written to a path, and not to a NoneType"),
        (lambda session: session.state(["hidden.biass"]), "no state is called 'hidden.biass' .*'hidden.bias'"),
        (lambda session: session.state("hidden.bias"), "a list, and 'hidden.bias' is none"),
        (lambda session: bc.Session(session.program, session.program), "no device of the kind Program: give one of"),
        *(
            (lambda session, seed=seed: bc.Session(session.program, seed=seed), f"seed {seed!r}: give a whole number")
            for seed in ("x", -1, 1.5, 2**70)
        ),
        (lambda session: session.evaluate(CASES["mlp"].batches(1)[0], 3), "by name, .* and not as this int"),
        (
            lambda session: session.evaluate(CASES["mlp"].batches(1)[0], [ms.train.Accuracy()]),
            "by name, .* and not as this Accuracy",
        ),
        (lambda session: bc.Session(session.program, check_replicas="2"), "cycles between two .* '2': give a whole"),
        (copy.copy, r"neither be copied nor pickled: .* bc\.Session\(session\.program\)"),
        (copy.deepcopy, "neither be copied nor pickled"),
        (pickle.dumps, "neither be copied nor pickled"),
        (lambda session: pickle.dumps(session.program), r"programs cannot be pickled\. program\.save"),
        (lambda session: bc.evaluation_network(session.program, batch=0), "a batch of 0: give a whole number"),
        (lambda session: bc.evaluation_network(session.program, batch="x"), "a batch of 'x': give a whole number"),
    ],
)
def test_a_wrong_argument_is_one_clear_error(mlp, use, message):
    before = mlp.state()
    with pytest.raises(bc.Error, match=message):
        use(mlp)
    assert_same_state(mlp.state(), before)


def test_a_missing_kernel_names_primitive_device_and_place(exported):
    """Before the first micro-batch, also where the graph that lacks it runs at the end of a cycle."""
    for source in (bc.load(exported("mlp_lamb")), bc.compile(bc.load(exported("mlp_lamb")), "gradient-accumulation")):
        name = list(source.graphs)[-1]
        with pytest.raises(
            bc.Error, match=rf"'{name}'.* no CPU kernel for primitive Lamb .*optimizer.*AdamWeightDecay"
        ):
            bc.Session(source)


def test_a_device_that_is_not_there_is_a_clear_error(exported, monkeypatch, tmp_path):
    program = bc.load(exported("mlp"))
    with pytest.raises(bc.Error, match="no device 'TPU': give one of CPU, GPU, Ascend"):
        bc.Session(program, device="TPU")
    assert "on CPU" in repr(bc.Session(program, device="cpu"))

    def refuse(device):
        raise RuntimeError(f"Unsupported device target {device}.\n\n-----\n- C++ Call Stack\n-----\ncontext.cc:7")

    monkeypatch.setattr(ms, "set_device", refuse)
    monkeypatch.delenv("ASCEND_HOME_PATH", raising=False)
    reason = r"device Ascend cannot be used: Unsupported device target Ascend\. CANN: ASCEND_HOME_PATH is not set\."
    with pytest.raises(bc.Error, match=reason + r".*bc\.check_device\('Ascend'\) looks at all that it needs"):
        bc.Session(program, device="Ascend")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    with pytest.raises(bc.Error, match=r"Unsupported device target GPU\. CUDA_HOME: .* has no bin/nvcc"):
        bc.Session(program, device="GPU")


def test_no_files_are_left_behind(exported, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    bc.Session(bc.load(exported("mlp"))).step(*CASES["mlp"].batches(1)[0])
    assert list(tmp_path.iterdir()) == []


def test_the_seed_makes_dropout_repeatable(exported):
    program = bc.load(exported("dropout"))
    batches = CASES["dropout"].batches(4)

    def losses(seed: int) -> list[float]:
        session = bc.Session(program, seed=seed)
        return [session.step(*batch).loss for batch in batches]

    assert losses(3) == losses(3)
    assert losses(3) != losses(4)


@pytest.mark.parametrize("primitive", ["PyExecute", "Custom"])
def test_a_primitive_that_runs_code_of_the_file_is_refused(tmp_path, primitive):
    touched = tmp_path / "touched"
    program = parse_program(
        f"""
graph @step(%x: float32[2]) {{
  %names = MakeTuple("x")
  %values = MakeTuple(%x)
  %y = {primitive}("open('{touched}', 'w').close() or x", %names, %values) : float32[2] kind(1)
  return %y
}}
"""
    )
    with pytest.raises(bc.Error, match=f"{primitive}.*%y.*runs code"):
        bc.Session(program).step(np.ones(2, np.float32))
    assert not touched.exists()


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if k not in ("ONEDNN_MAX_CPU_ISA", "MS_COMPILER_CACHE_ENABLE")}
    return subprocess.run(
        [sys.executable, "-c", code], env={**clean, **environment}, capture_output=True, text=True, check=True
    )


def test_state_that_no_machine_holds_is_refused_before_it_is_allocated():
    program = parse_program("""
        state %w: float32[1099511627776, 1024] role=weight
        graph @step(%x: float32[2]) {
          %r = Load(%w, umonad)
          return %x
        }
    """)
    with pytest.raises(bc.Error, match=r"state takes 4,194,304\.0 GB, and this machine has [\d,.]+ GB"):
        bc.Session(program)


def test_importing_the_package_loads_no_framework():
    run("import sys, boost_compile as bc; bc.Error; bc.Program; assert not {'mindspore', 'numpy'} & sys.modules.keys()")


GRAPH = (
    "graph @step(%x: float32[2,3,8,8]) {{\n  %w = Neg(%x) : float32[{weight}]\n"
    "  %y = {op}(%x, %w) : float32[2,4,8,8]\n  return %y\n}}\n"
)
PREPARE = (
    "import os, sys; from boost_compile.ir.text import parse_graph; "
    "from boost_compile.runtime.engine.environment import prepare_environment as p; "
    "g = [parse_graph({graph!r})]; p(g); p(g); {then}"
)
CONVOLUTION = GRAPH.format(op="Conv2D", weight="4,3,3,3")
POINT = GRAPH.format(op="Conv2D", weight="4,3,1,1")


def test_the_environment_is_prepared_once_and_visibly():
    then = "assert 'mindspore' not in sys.modules; print(os.environ['MS_COMPILER_CACHE_ENABLE'])"
    done = run(PREPARE.format(graph=CONVOLUTION, then=then), MS_COMPILER_CACHE_ENABLE="1")
    assert done.stdout.strip() == "0"
    assert done.stderr.count("MS_COMPILER_CACHE_ENABLE=0") == 1


@pytest.mark.parametrize(
    ("version", "graph", "expected"),
    [
        ("2.10.0", CONVOLUTION, "AVX2"),
        ("2.9.1", GRAPH.format(op="Conv2DBackpropInput", weight="4,3,1,7"), "AVX2"),
        ("2.10.0", GRAPH.format(op="Conv2DTranspose", weight="2,3,3,3"), "AVX2"),
        ("2.10.0", POINT, "None"),
        ("2.10.0", POINT.replace("(%x, %w)", "(%x, %w) {stride = (1, 1, 2, 2)}"), "AVX2"),
        (
            "2.10.0",
            POINT.replace("(%x, %w)", "(%x, %w) {stride = (1, 1, 1, 1), group = 1, pad_list = (1, 1, 1, 1)}"),
            "AVX2",
        ),
        ("2.10.0", GRAPH.format(op="MatMul", weight="4,3,3,3"), "None"),
        ("2.8.0", CONVOLUTION, "None"),
        ("2.11.0", CONVOLUTION, "None"),
    ],
)
def test_the_convolution_setting_is_for_the_releases_and_the_networks_that_need_it(version, graph, expected):
    code = f"from importlib import metadata; metadata.version = lambda name: {version!r}; "
    code += PREPARE.format(graph=graph, then="print(os.environ.get('ONEDNN_MAX_CPU_ISA'))")
    done = run(code, PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION="python")
    assert done.stdout.strip() == expected
    assert "ONEDNN" not in done.stderr


@pytest.mark.parametrize(("device", "graphs"), [("CPU", 1), ("GPU", 0)])
def test_the_settings_of_a_cpu_are_not_for_other_devices(exported, monkeypatch, device, graphs):
    seen = []
    monkeypatch.setattr(engine, "prepare_environment", lambda given: seen.append(list(given)))
    monkeypatch.setattr(engine, "choose_device", lambda device: None)
    bc.Session(bc.load(exported("mlp")), device=device)
    assert [len(given) for given in seen] == [graphs]


def test_a_convolution_setting_of_the_user_stays():
    code = "from importlib import metadata; metadata.version = lambda name: '2.10.0'; "
    code += PREPARE.format(graph=CONVOLUTION, then="print(os.environ.get('ONEDNN_MAX_CPU_ISA'))")
    kept = run(code, ONEDNN_MAX_CPU_ISA="AVX512_CORE")
    assert kept.stdout.strip() == "AVX512_CORE"
    assert kept.stderr == ""


@pytest.mark.parametrize(("mindspore", "numpy", "said"), [("2.10.0", "2.4.6", 1), ("2.11.0", "2.4.6", 0)])
def test_a_numpy_that_mindspore_was_not_built_for_is_said_once(mindspore, numpy, said):
    code = f"from importlib import metadata; metadata.version = lambda name: {mindspore!r}; "
    code += f"import numpy; numpy.__version__ = {numpy!r}; "
    code += PREPARE.format(graph=GRAPH.format(op="MatMul", weight="4,3"), then="pass")
    done = run(code)
    assert done.stderr.count(f"numpy {numpy} is installed: pip install 'numpy<2'") == said


def test_a_protobuf_that_mindspore_cannot_be_imported_with_is_named_before_it_tries():
    code = (
        "from importlib import metadata; metadata.version = lambda name: '{}'\n"
        "from google import protobuf; protobuf.__version__ = '{}'\n"
        "from google.protobuf.internal import api_implementation as a; a.Type = lambda: '{}'\n"
        "from boost_compile import Error\n"
        "from boost_compile.runtime.engine.environment import prepare_environment\n"
        "try: prepare_environment([])\n"
        "except Error as e: print(e)"
    )
    refused = run(code.format("2.8.0", "7.36.2", "upb")).stdout
    assert "MindSpore 2.8.0" in refused
    assert "protobuf<3.21" in refused
    for works in [("2.8.0", "7.36.2", "python"), ("2.8.0", "3.20.2", "cpp"), ("2.10.0", "7.36.2", "upb")]:
        assert run(code.format(*works)).stdout == ""
