"""boost-run --save-adapter, --load-adapter and --weights merged: adapters alone, and added to the weights."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from boost_compile.tools.compile import command as compile_command
from boost_compile.tools.inspect import command as inspect_command
from boost_compile.tools.run import command
from onnxruntime import InferenceSession
from safetensors.numpy import load_file

import boost_compile as bc
from tests.networks import CASES
from tests.tools.support import assert_one_error, shell, write_data

LAYERS = ("hidden", "output")
PASSES = "lora{match=[*.weight],rank=2,alpha=4,train=[*.bias]}"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data(tmp_path_factory.mktemp("data") / "data.npz", CASES["mlp_adam"].batches(4))


def test_adapters_are_saved_alone_loaded_and_merged(
    exported: Callable[[str], Path], data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program, adapters = tmp_path / "p.boost", tmp_path / "tuned" / "adapter_model.safetensors"
    state, weights = tmp_path / "state.safetensors", tmp_path / "merged.safetensors"
    adapters.parent.mkdir()
    assert shell(capsys, compile_command, exported("mlp_adam"), "--passes", PASSES, "-o", program).code == 0
    line = (program, "--data", data, "--epochs", 2, "--save", state, "--save-adapter", adapters)
    done = shell(capsys, command, *line, "--weights", "merged", "--save-weights", weights)
    assert done.code == 0, done.err
    assert f"Saved the merged weights to {weights}." in done.out.replace("\n", "")
    assert f"Saved the adapters to {adapters}." in done.out.replace("\n", "")

    # What PEFT looks for: its names, its shapes, its configuration.
    trained, held = load_file(state), load_file(adapters)
    names = [f"{layer}.{part}" for layer in LAYERS for part in ("lora_A.weight", "lora_B.weight", "bias")]
    assert sorted(held) == sorted(f"base_model.model.{name}" for name in names)
    for name in names:
        np.testing.assert_array_equal(held[f"base_model.model.{name}"], trained[name])
    written = json.loads((adapters.parent / "adapter_config.json").read_text())
    facts = {"peft_type": "LORA", "r": 2, "lora_alpha": 4.0, "target_modules": [*LAYERS], "bias": "all"}
    assert {name: written[name] for name in (*facts, "modules_to_save")} == {**facts, "modules_to_save": None}

    # Merged: a network of the names that the original has, which predicts the same.
    whole = load_file(weights)
    assert sorted(whole) == sorted(f"{layer}.{part}" for layer in LAYERS for part in ("weight", "bias"))
    a, b = (trained[f"hidden.lora_{m}.weight"].astype(np.float64) for m in "AB")
    assert np.any(b)
    np.testing.assert_array_equal(
        whole["hidden.weight"], (trained["hidden.weight"] + 4 / 2 * (b @ a)).astype(np.float32)
    )
    images = CASES["mlp_adam"].batches(1)[0][0]
    native = bc.Session(bc.load(exported("mlp_adam")))
    native.load_state(str(weights), strict=False)
    session = bc.Session(program)
    session.load_state(str(state))
    np.testing.assert_allclose(native.predict(images), session.predict(images), rtol=1e-5, atol=1e-6)

    onnx = tmp_path / "network.onnx"
    export = ("--standard", "--format", "onnx", "--state", state, "--weights", "merged", "-o", onnx)
    assert shell(capsys, inspect_command, program, *export).code == 0
    network = InferenceSession(str(onnx), providers=["CPUExecutionProvider"])
    (outputs,) = network.run(None, {network.get_inputs()[0].name: images})
    np.testing.assert_allclose(outputs, session.predict(images), rtol=1e-5, atol=1e-6)
    assert b"lora" not in onnx.read_bytes(), "the network has no adapters left"

    # A session that starts from the adapters stands where the trained one does.
    session = bc.Session(program)
    session.load_adapter(adapters)
    session.weights = "merged"
    session.update(fresh := bc.Session(bc.load(exported("mlp_adam"))).cell)
    updated = {p.name: p.asnumpy() for p in fresh.get_parameters()}
    np.testing.assert_array_equal(updated["hidden.weight"], whole["hidden.weight"])
    alone = shell(capsys, command, program, "--eval", data, "--load-adapter", adapters, "--json")
    again = shell(capsys, command, program, "--eval", data, "--load", state, "--json")
    assert alone.document["metrics"] == again.document["metrics"]


def test_adapters_of_another_program_are_refused(
    exported: Callable[[str], Path], data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = bc.load(exported("mlp_adam"))
    adapters = tmp_path / "adapters.safetensors"
    bc.Session(bc.compile(source, "lora{match=[hidden.weight],rank=2}")).save_adapter(adapters)
    plain = shell(capsys, command, exported("mlp_adam"), "--data", data, "--save-adapter", adapters)
    assert_one_error(plain, "boost-run", "the program has no adapters", "pass 'lora'")

    def refused(options: str, *words: str) -> None:
        program = tmp_path / "other.boost"
        bc.compile(source, f"lora{{{options}}}").save(program)
        found = shell(capsys, command, program, "--data", data, "--load-adapter", adapters)
        assert_one_error(found, "boost-run", *words)

    refused("match=[output.weight],rank=2", "'base_model.model.hidden.lora_A.weight'", "no adapter of the program")
    refused("match=[*.weight],rank=2", "lacks 'base_model.model.output.lora_A.weight'")
    refused("match=[hidden.weight],rank=2,alpha=1", "multiplied by 4", "by 0.5", "lora{rank=2,alpha=8}")
    refused("match=[hidden.weight],rank=3,alpha=12", "hidden.lora_A.weight")
    found = shell(capsys, command, exported("mlp_adam"), "--data", data, "--save-adapter", tmp_path / "adapters.ckpt")
    assert_one_error(found, "boost-run", "no state file by its name; end it with one of .safetensors")


@pytest.mark.slow
def test_resumed_self_contained_and_over_ranks(
    exported: Callable[[str], Path], data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A resumed training and one self-contained file have the bits of one training; ranks save adapters too."""
    passes = f"{PASSES},gradient-accumulation{{steps=2}},overflow-check"
    parts, whole, ranks = (tmp_path / name for name in ("parts.boost", "whole.mindir", "ranks.boost"))
    for program, text in ((parts, passes), (whole, passes), (ranks, f"{PASSES},data-parallel")):
        assert shell(capsys, compile_command, exported("mlp_adam"), "--passes", text, "-o", program).code == 0
    state, adapters = tmp_path / "state.safetensors", tmp_path / "adapters.safetensors"

    def trained(program: Path, *options: object) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        line = (program, "--data", data, "--save", state, "--save-adapter", adapters, *options, "-q")
        done = shell(capsys, command, *line)
        assert done.code == 0, done.err
        return load_file(state), load_file(adapters)

    once = trained(parts, "--epochs", 2)
    trained(parts, "--epochs", 1)
    resumed = trained(parts, "--epochs", 2, "--resume", state)
    contained = trained(whole, "--epochs", 2)
    for other in (resumed, contained):
        for wanted, found in zip(once, other, strict=True):
            assert sorted(wanted) == sorted(found)
            for name, value in wanted.items():
                np.testing.assert_array_equal(found[name], value, err_msg=name)
    over_ranks = trained(ranks, "--epochs", 1, "--ranks", 2, "--check-replicas", 1)[1]
    assert sorted(over_ranks) == sorted(once[1])
    assert any(np.any(value) for name, value in over_ranks.items() if "lora_B" in name)
