"""Optimizer state that real ranks deal out: the bits of data-parallel, memory, saved states, and the commands."""

from __future__ import annotations

import functools
import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path

import mindspore as ms
import numpy as np
import pytest
from boost_compile.ir.core.names import OWNED
from boost_compile.ir.rewrite.ranks.dealing import bytes_of_ranks, deal
from boost_compile.runtime.state.checkpoint import read_state
from boost_compile.tools.compile import command as compile_command
from boost_compile.tools.run import command as run_command
from mindspore import nn

import boost_compile as bc
from tests.conftest import export_once, zoo_folder
from tests.data_parallel_job import Run, Values
from tests.networks import CASES, build, names
from tests.ranks import run_ranks
from tests.tools.support import process, shell

SHARD, SHARD_TWO = "data-parallel,shard-optimizer", "data-parallel,shard-optimizer{stage=2}"
FLAT, FLAT_TWO = f"{SHARD}{{partition=flat}}", "data-parallel,shard-optimizer{stage=2,partition=flat}"
OVERFLOW = "overflow-check,loss-scale{init=1024,window=2}"
CLIP = "clip-gradients{limit=0.05,report_norm=true}"
LAST = ((1, 1, 0), (2, 0, 0))
"""Overflows on one rank alone, in two cycles."""

CONFIGURATIONS = {
    "adam": (Run("", "mlp_adam", ""), ""),
    "in functions": (Run("", "mlp_asgd", ""), ""),
    "half": (Run("", "mlp_half_weights", ""), ""),
    "overflow in a cycle": (Run("", "mlp_adam", "", cycles=4, micro=3, hits=LAST), OVERFLOW),
    "clipped": (Run("", "mlp_momentum_decay", "", micro=3), CLIP),
    "frozen": (Run("", "mlp", "", cycles=6), "gradient-freeze{groups=2,total_steps=6}"),
}
MORE = {
    "cycle": (Run("", "mlp_adam", "", micro=3), ""),
    "own scale": (Run("", "mlp_loss_scale_dynamic_adam", ""), ""),
    "overflow": (Run("", "mlp_adam", "", cycles=4, hits=LAST), OVERFLOW),
    "short": (Run("", "mlp", "", micro=3, short=1), ""),
}
"""In the long sweep."""
CUT = CONFIGURATIONS["overflow in a cycle"][0]
ANY_SIZE = Run("", "lenet_bn_decay", "", cycles=2)
"""One of its weights has no multiple of 16 elements for each of four ranks."""
ONE_MICRO_BATCH = ("adam",)
"""Where stage 2 has the bits of data-parallel."""
TRACED = {"traced": SHARD, "traced flat": FLAT}
CYCLES = ("overflow in a cycle", "clipped")


def compiled(run: Run, passes: str) -> bc.Program:
    cycle = f"gradient-accumulation{{steps={run.micro}}}" if run.micro > 1 else ""
    passes = ",".join(filter(None, [cycle, passes]))
    return bc.compile(bc.load(str(export_once(run.case, zoo_folder()))), passes)


def undealt(program: bc.Program) -> bc.Program:
    """Its ranks exchange as they did, and each of them holds all."""
    for variable in program.state.values():
        variable.info.pop(OWNED, None)
    return program


def started(ranks: int, wanted: Mapping[str, tuple[Run, str | bc.Program]]) -> list[Values]:
    """What the ranks of one job reported of these programs, or of those that these passes make."""
    with tempfile.TemporaryDirectory(prefix="shard-") as name:
        folder = Path(name)
        runs = []
        for i, (key, (run, passes)) in enumerate(wanted.items()):
            path = folder / f"{i}.boost"
            (compiled(run, passes) if isinstance(passes, str) else passes).save(str(path))
            runs.append(asdict(run) | {"key": key, "program": str(path)})
        (folder / "runs.json").write_text(json.dumps(runs))
        found = run_ranks("tests.shard_job", ranks, str(folder))
        if "resumed" in wanted:
            for suffix in ("ckpt", "safetensors"):
                found[0].update({f"{suffix}/{n}": v for n, v in read_state(folder / f"middle.{suffix}").items()})
        return found


def described(ranks: int) -> dict[str, tuple[Run, str]]:
    if ranks == 4:
        gpt = Run("", "gpt", "", cycles=2)
        return {"gpt plain": (gpt, "data-parallel"), "gpt": (gpt, SHARD), "gpt 2": (gpt, SHARD_TWO)}
    found: dict[str, tuple[Run, str]] = {}
    for key, (run, passes) in CONFIGURATIONS.items():
        for stage, pipeline in (("plain", "data-parallel"), ("1", SHARD), ("2", SHARD_TWO)):
            if stage != "2" or key in (*ONE_MICRO_BATCH, *CYCLES):
                found[f"{key} {stage}"] = (run, ",".join(filter(None, [passes, pipeline])))
    found |= {key: (Run("", "mlp_adam", "", micro=3), passes) for key, passes in TRACED.items()}
    found["cut"] = (CUT, f"{OVERFLOW},{FLAT}")
    found["resumed"] = (Run("", "mlp_adam", "", cycles=2, micro=3), FLAT_TWO)
    return found


@functools.cache
def job(ranks: int) -> list[Values]:
    return started(ranks, described(ranks))


def part(values: Values, prefix: str) -> Values:
    return {name.removeprefix(prefix): value for name, value in values.items() if name.startswith(prefix)}


def assert_same(found: Values, wanted: Values, but: tuple[str, ...] = ()) -> None:
    assert wanted
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        if not name.startswith(but or ("\0",)):
            assert found[name].tobytes() == value.tobytes(), name


pytestmark = pytest.mark.xdist_group("ranks")


@pytest.mark.parametrize("key", CONFIGURATIONS)
def test_two_ranks_have_the_bits_of_data_parallel(key: str) -> None:
    """Weights, slots, scales and results; each rank holds less than all."""
    for values in job(2):
        wanted = part(values, f"{key} plain/state/")
        for stage in ("1", "2") if key in ONE_MICRO_BATCH else ("1",):
            assert_same(part(values, f"{key} {stage}/state/"), wanted)
            assert str(values[f"{key} {stage}/outputs"]) == str(values[f"{key} plain/outputs"])
            assert len(values[f"{key} {stage}/held"]) < len(values[f"{key} plain/held"])


def test_weights_that_are_cut_have_the_bits_of_data_parallel() -> None:
    """Each rank has half of the largest weight's slots."""
    program = compiled(CUT, f"{OVERFLOW},{FLAT}")
    assert list(deal(program, 2).cut) == ["hidden.weight"]
    for rank, values in enumerate(job(2)):
        assert_same(part(values, "cut/state/"), part(values, "overflow in a cycle plain/state/"))
        assert str(values["cut/outputs"]) == str(values["overflow in a cycle plain/outputs"])
        slots = {n for n, v in program.state.items() if v.role == "slot"}
        here = {n for n in slots if deal(program, 2).holders.get(n, rank) == rank}
        assert {n for n in values["cut/held"] if n in slots} == here


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 4])
def test_pieces_have_the_bits_of_whole_weights(ranks: int) -> None:
    """Next to data-parallel or, where stage 2 rounds otherwise, to stage 2 with whole weights."""
    wanted: dict[str, tuple[Run, str]] = {}
    same: dict[str, str] = {}
    for key, (run, passes) in {**CONFIGURATIONS, **MORE, "of any size": (ANY_SIZE, "")}.items():
        pipelines = {"plain": "data-parallel", "whole 2": SHARD_TWO, "flat": FLAT, "flat 2": FLAT_TWO}
        pipelines["auto"] = f"{SHARD}{{partition=auto}}"
        if key == "in functions":  # which serve several weights
            pipelines = {kind: pipelines[kind] for kind in ("plain", "auto")}
        wanted |= {f"{key} {kind}": (run, ",".join(filter(None, [passes, p]))) for kind, p in pipelines.items()}
        for kind in pipelines.keys() & {"flat", "flat 2", "auto"}:
            rounds = kind == "flat 2" and run.micro > 1
            same[f"{key} {kind}"] = f"{key} whole 2" if rounds else f"{key} plain"
            assert kind == "auto" or deal(compiled(*wanted[f"{key} {kind}"]), ranks).cut
    for values in started(ranks, wanted):
        for found, other in same.items():
            assert_same(part(values, f"{found}/state/"), part(values, f"{other}/state/"))
            assert str(values[f"{found}/outputs"]) == str(values[f"{other}/outputs"]), found


@pytest.mark.parametrize("key", CYCLES)
def test_longer_cycles_of_stage_2_round_otherwise_than_data_parallel(key: str) -> None:
    """It adds up the same gradients, over the ranks first. Both ranks have the same bits, and neither all sums."""
    first, second = job(2)
    assert_same(part(first, f"{key} 2/state/"), part(second, f"{key} 2/state/"))
    wanted = part(first, f"{key} plain/state/")
    for name, value in part(first, f"{key} 2/state/").items():
        np.testing.assert_allclose(value, wanted[name], rtol=1e-5, atol=1e-6, err_msg=name)
    sums = [{n for n in values[f"{key} 2/held"] if n.startswith("accum.")} for values in (first, second)]
    assert sums[0]
    assert sums[1]
    assert not sums[0] & sums[1]


@pytest.mark.slow
@pytest.mark.parametrize("part_of", range(4))
@pytest.mark.parametrize("micro", [1, 3])
@pytest.mark.parametrize("ranks", [2, 4])
def test_every_optimizer(ranks: int, micro: int, part_of: int) -> None:
    """Clipped, and with one rank that overflows under a dynamic loss scale; next to data-parallel or, where stage 2
    rounds otherwise, to ranks that sum every micro-batch and deal nothing out."""
    cases = names("optimizer", runs_on_cpu=True)[part_of::4]
    wanted: dict[str, tuple[Run, str | bc.Program]] = {}
    judges: dict[str, str] = {}
    for case in cases:
        run = Run("", case, "", cycles=4, micro=micro, hits=LAST)
        first, second = (
            f"{CLIP},{OVERFLOW},data-parallel,shard-optimizer?{{stage={stage},partition=auto}}" for stage in (1, 2)
        )
        wanted |= {f"{case} plain": (run, f"{CLIP},{OVERFLOW},data-parallel"), f"{case} 1": (run, first)}
        judges[f"{case} 1"] = judges[f"{case} 2"] = f"{case} plain"
        wanted[f"{case} 2"] = (run, second)
        if micro > 1:
            wanted[f"{case} undealt"] = (run, undealt(compiled(run, second)))
            judges[f"{case} 2"] = f"{case} undealt"
    for values in started(ranks, wanted):
        for found, judge in judges.items():
            assert_same(part(values, f"{found}/state/"), part(values, f"{judge}/state/"))
            assert str(values[f"{found}/outputs"]) == str(values[f"{judge}/outputs"]), found


@pytest.mark.slow
def test_four_ranks_train_a_transformer_with_a_quarter_of_the_slots_each() -> None:
    run, _ = described(4)["gpt"]
    program = compiled(run, SHARD)
    slots = {n: v.nbytes for n, v in program.state.items() if v.role == "slot"}
    assert {n for n, v in program.state.items() if v.info.get(OWNED)} == set(slots)
    held = []
    for values in job(4):
        for key in ("gpt", "gpt 2"):
            assert_same(part(values, f"{key}/state/"), part(values, "gpt plain/state/"))
        held.append(sum(slots[n] for n in values["gpt/held"] if n in slots))
    assert held == bytes_of_ranks(program, 4)
    assert sum(held) == sum(slots.values())
    assert max(held) <= 0.3 * sum(held)
    assert max(held) <= 1.05 * sum(held) / 4


@pytest.mark.parametrize("key", TRACED)
def test_a_cycle_of_three_exchanges_once(key: str) -> None:
    """As MindSpore's profiler counts the kernels: one sum of gradients and one of counts, and new weights once."""
    for values in job(2):
        counted = {kind: int(values[f"{key}/{kind}"]) for kind in ("AllReduce", "AllGather", "Broadcast")}
        assert counted == {"AllReduce": 2, "AllGather": 1, "Broadcast": 0}


def test_saved_in_the_middle_of_a_cycle_it_goes_on_there() -> None:
    first, second = job(2)
    for values in (first, second):
        assert_same(part(values, "again/"), part(values, "resumed/state/"))
    sums = part(first, "saved/")
    for suffix in ("ckpt", "safetensors"):
        file = part(first, f"{suffix}/")
        assert file.keys() == sums.keys()
        for name, value in sums.items():
            # The mean over the ranks, as where each has a sum of its own: any number of ranks may go on from it.
            shared = value / 2 if name.startswith("accum.") else value
            np.testing.assert_array_equal(file[name], shared, err_msg=name)


@pytest.mark.parametrize("ranks", [(2, 1), pytest.param((4, 2, 1), marks=pytest.mark.slow)])
def test_one_checkpoint_whatever_the_number_of_ranks(
    ranks: tuple[int, ...], exported: Callable[[str], Path], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """By the commands: every job goes on where the one before it ended; the judge is one process without ranks."""
    case = "mlp_dynamic_batch"
    options = ("--accumulate", 2, "--data-parallel", "--passes", "shard-optimizer{partition=auto}", "-o", "mlp.boost")
    monkeypatch.chdir(tmp_path)
    told = shell(capsys, compile_command, exported(case), *options)
    assert "the slots of 4 weights" in told.out
    rng = np.random.default_rng(0)
    data = rng.standard_normal((64, 8)).astype(np.float32), rng.integers(0, 4, 64).astype(np.int32)
    np.savez(tmp_path / "data.npz", *data)
    for epoch, count in enumerate(ranks, 1):
        resume = ("--resume", f"{epoch - 1}.ckpt") if epoch > 1 else ()
        line = ("mlp.boost", "--data", "data.npz", "--epochs", epoch, "--batch-size", 16 // count, "--ranks", count)
        run = partial(process, "run") if count > 1 else partial(shell, capsys, run_command)
        done = run(*line, "--save", f"{epoch}.ckpt", *resume)
        assert done.code == 0, done.err
    alone = bc.Session(bc.compile(bc.load(exported(case)), "gradient-accumulation{steps=2}"), seed=0)
    alone.fit(data, epochs=len(ranks), batch_size=16, seed=0, progress=False)
    saved = read_state(tmp_path / f"{len(ranks)}.ckpt")
    assert saved.keys() == alone.state().keys()
    for name, value in alone.state().items():
        np.testing.assert_allclose(saved[name], value, rtol=2e-5, atol=2e-6, err_msg=name)
    native = build(CASES[case])
    stored = ms.load_checkpoint(str(tmp_path / "1.ckpt"))
    optimizer = native.train_step.optimizer
    assert isinstance(optimizer, nn.Cell)
    unloaded, _ = ms.load_param_into_net(native.train_step, stored)
    assert unloaded == []
    momenta = {p.name: p.asnumpy() for p in optimizer.get_parameters() if p.name.startswith("moments.")}
    assert momenta
    for name, value in momenta.items():
        np.testing.assert_array_equal(value, read_state(tmp_path / "1.ckpt")[name])
