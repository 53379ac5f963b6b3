"""Whatever fails on the way, the script gets an error where it runs the step, and no step runs as it was."""

from __future__ import annotations

import os
import subprocess
from importlib import metadata

import mindspore as ms
import numpy as np
import pytest
from boost_compile.ir.core.errors import Error, RuntimeFailure
from boost_compile.runtime.in_compiler import build, hook
from mindspore import nn

import boost_compile as bc
from tests.runtime.in_compiler import steps

pytestmark = pytest.mark.mindspore
ACCUMULATION = "gradient-accumulation{steps=4}"


@pytest.fixture(autouse=True)
def _as_before():
    ms.set_context(mode=ms.GRAPH_MODE)
    yield
    bc.disable()


def new_step():
    net = steps.network()
    return steps.cell_step(net, steps.momentum(net.trainable_params()))


# -- inside of the compiler --------------------------------------------------------------------------------------------


def raises(error: BaseException):
    def fail(*_: object) -> None:
        raise error

    return fail


def returns(change):
    """The hook, with what it returns changed."""
    genuine = hook.rewrite
    return lambda data, parameters: change(*genuine(data, parameters))


FAULTS = {
    "the hook has a bug": (hook, "rewrite", raises(ZeroDivisionError("oops")), ZeroDivisionError, "oops"),
    "the hook cannot be asked": (hook, "is_listening", raises(KeyError("oops")), KeyError, "oops"),
    "the hook returns nonsense": (hook, "rewrite", lambda *_: 3, TypeError, "int"),
    "it cannot be read": (hook, "read_step", raises(Error("unread")), Error, "unread"),
    "a pass fails": (hook, "rewrite_step", raises(MemoryError()), MemoryError, ""),
    "nothing is to be loaded": (hook, "rewrite", returns(lambda _, *rest: (b"", *rest)), RuntimeError, "cannot load"),
    "half is to be loaded": (
        hook, "rewrite", returns(lambda data, *rest: (data[: len(data) // 2], *rest)), RuntimeError, "load",
    ),
    "a state is missing": (hook, "rewrite", returns(lambda d, s, n: (d, s[1:], n)), RuntimeError, "takes"),
    "a state is unknown": (hook, "rewrite", returns(lambda d, s, n: (d, ["?", *s[1:]], n)), RuntimeError, "'?'"),
    "a Parameter is missing": (hook, "rewrite", returns(lambda d, s, n: (d, s, {})), RuntimeError, "nothing holds"),
    "a Parameter is none": (
        hook, "rewrite", returns(lambda d, s, n: (d, s, dict.fromkeys(n, 3))), RuntimeError, "",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_the_compiler_is_an_error(fault, monkeypatch):
    place, name, instead, kind, says = FAULTS[fault]
    step = new_step()
    before = steps.values(step)
    handle = bc.enable(ACCUMULATION)
    with monkeypatch.context() as patch:
        patch.setattr(place, name, instead)
        for _ in range(2):  # a second call is no way out
            with pytest.raises(kind) as caught:
                step(*steps.micro_batches()[0])
            assert says in str(caught.value)
    assert handle.steps_taken == 0
    assert steps.worst(steps.values(step), before) == 0
    step(*steps.micro_batches()[0])
    assert handle.steps_taken == 1
    assert steps.worst(steps.values(step), before) == 0, "the first of four micro-batches changes no weight"


# -- steps that would run as they were ---------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [steps.cell_step, steps.function_step])
def test_a_step_that_was_compiled_before_is_an_error(make):
    ms.set_context(mode=ms.GRAPH_MODE if make is steps.cell_step else ms.PYNATIVE_MODE)
    net, other = steps.network(), steps.network()
    step = make(net, steps.momentum(net.trainable_params()))
    batch = steps.micro_batches()[0]
    step(*batch)
    before = steps.values(net)
    with bc.enable(ACCUMULATION, cell=other):
        make(other, steps.momentum(other.trainable_params()))(*batch)
        step(*batch)  # nobody asked for this one
    before = steps.values(net)
    bc.enable(ACCUMULATION)
    for _ in range(2):
        with pytest.raises(RuntimeFailure, match=r"had compiled the step that trains '.*' before bc\.enable"):
            step(*batch)
    assert steps.worst(steps.values(net), before) == 0
    bc.disable()
    step(*batch)


@pytest.mark.parametrize("make", [steps.momentum, steps.adamw])
def test_an_update_outside_of_a_compiled_step_is_an_error(make):
    """PyNative mode without @ms.jit: there is no step to rewrite."""
    ms.set_context(mode=ms.PYNATIVE_MODE)
    net = steps.network()
    optimizer = make(net.trainable_params())
    gradients_of = ms.value_and_grad(nn.WithLossCell(net, steps.loss_function()), None, net.trainable_params())
    bc.enable(ACCUMULATION)
    _, gradients = gradients_of(*steps.micro_batches()[0])
    with pytest.raises(RuntimeFailure, match=r"outside of a compiled step.*@mindspore\.jit"):
        optimizer(gradients)


def test_two_pipelines_for_one_step_are_an_error():
    step = new_step()
    bc.enable(ACCUMULATION)
    bc.enable("overflow-check", match="0.*")
    with pytest.raises(Error, match=r"2 calls of bc\.enable ask for the step that trains"):
        step(*steps.micro_batches()[0])


def test_a_block_without_a_step_is_an_error():
    with pytest.raises(RuntimeFailure, match="compiled no training step in it"), bc.enable(ACCUMULATION):
        steps.network()(steps.micro_batches()[0][0])


def test_the_compile_cache_of_mindspore_is_off(monkeypatch):
    """It would run the graph of another pipeline."""
    monkeypatch.setenv("MS_COMPILER_CACHE_ENABLE", "1")
    bc.enable(ACCUMULATION)
    assert os.environ["MS_COMPILER_CACHE_ENABLE"] == "0"


@pytest.mark.parametrize(
    ("pipeline", "says"),
    [
        ("gradient-accumulatoin{steps=4}", "did you mean"),
        ("less-bn", "matched nothing"),
        ("batch-size{size=2}", "a step of other inputs"),
        ("dim-reduce{basis=rows.npy,n_components=2}", "cannot be rewritten inside of MindSpore's compiler.*bc.capture"),
    ],
)
def test_what_cannot_be_done_inside_is_said(pipeline, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("rows.npy", np.eye(2, sum(p.size for p in steps.network().trainable_params()), dtype=np.float32))
    step = new_step()

    def run() -> None:
        bc.enable(pipeline)
        step(*steps.micro_batches()[0])

    with pytest.raises(Error, match=says):
        run()


# -- the bridge --------------------------------------------------------------------------------------------------------


def lacks_compiler(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(build.shutil, "which", lambda _: None)


def lacks_headers(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(build.sysconfig, "get_paths", lambda: {"include": "/nowhere"})


def fails_to_compile(patch: pytest.MonkeyPatch) -> None:
    done = subprocess.CompletedProcess([], 1, "", "note: x\nbridge.cc:1: error: no such thing\n")
    patch.setattr(build.subprocess, "run", lambda *_, **__: done)


def is_old(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(build.metadata, "version", lambda _: "2.8.0")


def is_missing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(build.metadata, "version", raises(metadata.PackageNotFoundError("mindspore")))


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (lacks_compiler, r"no g\+\+.*apt install g\+\+.*bc.capture"),
        (lacks_headers, r"Python's headers.*apt install python3-dev.*bc.capture"),
        (fails_to_compile, "error: no such thing.*bc.capture"),
        (is_old, "MindSpore 2.8.0 hands no graph to passes.*bc.capture"),
        (is_missing, "MindSpore is not installed"),
    ],
)
def test_a_bridge_that_cannot_be_built_is_an_error(fault, says, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with monkeypatch.context() as patch:
        fault(patch)
        with pytest.raises(Error, match=says):
            bc.enable(ACCUMULATION)
    assert not list(tmp_path.rglob("*.so"))
    assert not list(tmp_path.rglob(".*"))


def test_the_bridge_is_small():
    """The only C++ of the project."""
    assert len(build.SOURCE.read_text().splitlines()) <= 250
