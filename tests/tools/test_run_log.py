"""boost-run --log: what a training writes down, in each format, and what its monitors find."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from boost_compile.runtime.training import log_files
from boost_compile.tools.compile import command as compile_command
from boost_compile.tools.run import command
from safetensors.numpy import load_file, save_file

import boost_compile as bc
from tests.compare import assert_equal
from tests.native import tensors
from tests.networks import CASES, build, state_of
from tests.tools.support import assert_one_error, process, shell, write_data

PIPELINE = (
    "gradient-accumulation{steps=2},loss-scale{init=8},monitor{what=[gradient-norm,weight-norm,noise-scale],every=2}"
)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data(tmp_path_factory.mktemp("data") / "data.npz", CASES["mlp_adam"].batches(6))


@pytest.fixture
def program(exported: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    path = tmp_path / "p.boost"
    assert shell(capsys, compile_command, exported("mlp_adam"), "--passes", PIPELINE, "-o", path).code == 0
    return path


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def mindinsight_scalars(folder: Path) -> Iterator[tuple[int, str, float]]:
    """Step, tag and value, by the definitions that MindSpore brings along; records are framed as in TFRecord files."""
    from mindspore.train.summary_pb2 import Event

    for path in folder.iterdir():
        content = path.read_bytes()
        while content:
            (size,) = struct.unpack("<Q", content[:8])
            event = Event.FromString(content[12 : 12 + size])
            content = content[size + 16 :]
            for value in event.summary.value:
                yield event.step, value.tag, value.scalar_value


def test_a_training_is_written_down_and_goes_on_in_its_file(
    program: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fork() -> int:
        raise AssertionError("a copy of a process whose engine has threads may wait for a lock forever")

    monkeypatch.setattr(os, "fork", fork)
    log, summary, state = tmp_path / "run.jsonl", tmp_path / "summary", tmp_path / "state.safetensors"
    line = (program, "--data", data, "--val", data, "--save", state, "--log", f"jsonl:{log}", "--json")
    twice = ("--log", f"mindinsight:{summary}") * 2
    done = shell(capsys, command, *line, "--epochs", 1, *twice)
    assert done.code == 0, done.err
    written = [(step, tag) for step, tag, _ in mindinsight_scalars(summary)]
    assert len(written) == len(set(written)), "a log that is named twice is written once"
    begin, *cycles, epoch = records(log)
    assert (begin["event"], begin["cycle"], begin["micro_batches_a_cycle"]) == ("begin", 0, 2)
    assert [c["loss"] for c in cycles] == done.document["losses"]
    assert [(c["cycle"], c["loss_scale"], c["updated"], c["skipped"]) for c in cycles] == [
        (n, 8.0, True, 0) for n in (1, 2, 3)
    ]
    assert [c["learning_rate"] for c in cycles] == pytest.approx([done.document["epochs"][0]["rates"][0]] * 3)
    assert all(c["samples_per_second"] > 0 for c in cycles)
    assert ["monitors" in c for c in cycles] == [False, True, False]
    assert epoch["evaluation"] == done.document["epochs"][0]["evaluation"]
    session = bc.Session(bc.load(program))
    for batch in CASES["mlp_adam"].batches(4):
        session.step(*batch)
    assert cycles[1]["monitors"].keys() == session.monitors().values.keys()

    scalars = {(step, tag): value for step, tag, value in mindinsight_scalars(summary)}
    assert [scalars[n, "loss"] for n in (1, 2, 3)] == pytest.approx(done.document["losses"])
    weight = cycles[1]["monitors"]["weight-norm"]["hidden.weight"]
    assert scalars[2, "monitors/weight-norm/hidden.weight"] == pytest.approx(weight)
    assert scalars[3, "epoch/evaluation/val_loss"] == pytest.approx(epoch["evaluation"]["val_loss"])

    with log.open("a") as file:
        file.write('{"event": "cyc')  # a process that was killed here
    resumed = shell(capsys, command, *line, "--epochs", 2, "--resume", state)
    assert resumed.code == 0, resumed.err
    assert [(r["event"], r["cycle"]) for r in records(log)[5:]] == [
        *(("begin", 3), ("cycle", 4), ("cycle", 5), ("cycle", 6), ("epoch", 6)),
    ]
    assert ["monitors" in r for r in records(log)[6:9]] == [True, False, True]
    anew = shell(capsys, command, *line, "--epochs", 1)
    assert anew.code == 0
    assert len(records(log)) == 5


def test_a_checkpoint_of_native_training_loads_beside_monitors(
    exported: Callable[[str], Path], data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: Any
) -> None:
    """The training goes on as natively, and what is measured begins anew."""
    first, *batches = CASES["mlp_adam"].batches(3)
    native = build(CASES["mlp_adam"]).train_step
    native(*tensors(first))
    ms.save_checkpoint(native, str(tmp_path / "native.ckpt"))
    for batch in batches:
        native(*tensors(batch))
    program, state = tmp_path / "p.boost", tmp_path / "state.safetensors"
    compiled = shell(capsys, compile_command, exported("mlp_adam"), "--passes", "monitor", "-o", program)
    assert compiled.code == 0, compiled.err
    rest = write_data(tmp_path / "rest.npz", batches)
    line = (program, "--data", rest, "--no-shuffle", "--load", tmp_path / "native.ckpt", "--save", state, "--json")
    done = shell(capsys, command, *line)
    assert done.code == 0, done.err
    assert "native.ckpt was saved without monitors" in caplog.text
    trained = {name: value for name, value in load_file(state).items() if not name.startswith("monitor")}
    assert_equal(trained, state_of(native))
    short = {name: value for name, value in trained.items() if name != "hidden.bias"}
    save_file(short, tmp_path / "short.safetensors")
    lacking = shell(capsys, command, program, "--data", rest, "--load", tmp_path / "short.safetensors")
    assert_one_error(lacking, "boost-run", "short.safetensors lacks 1 of")


def test_event_files_are_read_back_by_tensorboard(exported: Callable[[str], Path], data: Path, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    session = bc.Session(bc.compile(bc.load(exported("mlp_adam")), "monitor{what=[weight-norm]}"))
    history = session.fit(str(data), epochs=1, callbacks=[bc.Log(f"tensorboard:{tmp_path / 'runs'}")])
    found = EventAccumulator(str(tmp_path / "runs"))
    found.Reload()
    assert [(e.step, e.value) for e in found.Scalars("loss")] == [
        (n, pytest.approx(loss)) for n, loss in enumerate(history.losses, 1)
    ]
    last = found.Scalars("monitors/weight-norm/hidden.weight")[-1]
    assert last.value == pytest.approx(session.monitors().values["weight-norm"]["hidden.weight"])


def test_what_the_monitors_find_is_said_and_reported(
    exported: Callable[[str], Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    program, path, log = tmp_path / "p.boost", tmp_path / "bad.npz", tmp_path / "run.jsonl"
    passes = ("--passes", "overflow-check,monitor{what=[non-finite]}")
    assert shell(capsys, compile_command, exported("mlp_adam"), *passes, "-o", program).code == 0
    batches = CASES["mlp_adam"].batches(3)
    batches[1] = (np.full_like(batches[1][0], np.inf), *batches[1][1:])
    write_data(path, batches)
    line = (program, "--data", path, "--no-shuffle", "--log", f"jsonl:{log}")
    done = shell(capsys, command, *line)
    assert done.code == 0, done.err
    assert "Monitors: not finite in 1 step, first in step 2: hidden.weight." in done.out
    assert "window 2, hidden.weight: 128 elements of its gradient are infinite or NaN" in caplog.messages
    _, _, bad, good, _ = records(log)
    assert (bad["updated"], bad["skipped"]) == (False, 1)
    assert [f["weight"] for f in bad["findings"]] == ["hidden.weight"], "the others see zeros: ReLU makes them of NaN"
    assert "findings" not in good
    document = shell(capsys, command, *line, "--json").document
    assert {(f["cycle"], f["what"]) for f in document["findings"]} == {(2, "not finite")}


def test_logs_that_cannot_be_written_are_refused_before_training(
    exported: Callable[[str], Path], data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    monkeypatch.setattr(log_files, "find_spec", lambda name: None)
    (tmp_path / "file").touch()

    def refused(target: str, *fragments: str) -> None:
        done = shell(capsys, command, exported("mlp_adam"), "--data", data, "--log", target)
        assert_one_error(done, "boost-run", *fragments)

    refused("run.jsonl", "write KIND:PLACE", "jsonl:run.jsonl")
    refused("json:run.jsonl", "no kind of log is called 'json'", "did you mean 'jsonl'?")
    refused(f"jsonl:{tmp_path}", "a folder stands there")
    refused(f"jsonl:{tmp_path}/nowhere/run.jsonl", "there is no folder")
    refused(f"mindinsight:{tmp_path}/file/summary", "no folder, but a file is")
    refused(f"tensorboard:{tmp_path}", "tensorboardX", "pip install 'boost-compile[tensorboard]'")
    done = shell(capsys, command, exported("mlp_adam"), "--eval", data, "--log", f"jsonl:{tmp_path}/run.jsonl")
    assert_one_error(done, "boost-run", "--log is for training")
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]


@pytest.mark.slow
def test_ranks_measure_the_gradients_that_they_exchange(
    exported: Callable[[str], Path], data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two ranks with cycles of one micro-batch measure what one process measures over cycles of two."""

    def logged(name: str, pipeline: str, *options: object) -> list[dict[str, Any]]:
        program, log = tmp_path / f"{name}.boost", tmp_path / f"{name}.jsonl"
        passes = ("--passes", f"{pipeline},monitor")
        assert shell(capsys, compile_command, exported("mlp_adam"), *passes, "-o", program).code == 0
        done = process("run", program, "--data", data, "--no-shuffle", "--log", f"jsonl:{log}", *options)
        assert done.code == 0, done.err
        return [record for record in records(log) if record["event"] == "cycle"]

    alone = logged("alone", "gradient-accumulation{steps=2}")
    ranks = logged("ranks", "data-parallel", "--ranks", 2)
    assert len(ranks) == len(alone) == 3
    for mine, theirs in zip(ranks, alone, strict=True):
        for kind in ("gradient-norm.update", "weight-norm", "update-ratio"):
            assert mine["monitors"][kind] == pytest.approx(theirs["monitors"][kind], rel=1e-4), kind
