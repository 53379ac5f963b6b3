"""States that stand side by side in memory: what a user of their Parameters sees, and what is done where they move."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from boost_compile.ir.core.errors import RuntimeFailure
from boost_compile.runtime.engine import engine
from boost_compile.runtime.engine.placing import Placed, can_place
from boost_compile.runtime.lowering.arenas import Arena, Arenas
from mindspore import nn, ops

import boost_compile as bc
from tests import native
from tests.compare import assert_equal
from tests.conftest import export_once, zoo_folder
from tests.networks import CASES, build
from tests.networks.case import state_of

Exported = Callable[[str], Path]
ARENA = Arena("arena.0", {"a": 0, "b": 16}, 48)


def parameters() -> dict[str, Any]:
    return {
        "a": ms.Parameter(ms.Tensor(np.arange(6, dtype=np.float32).reshape(2, 3)), name="a"),
        "b": ms.Parameter(ms.Tensor(np.full(16, 7, np.float32)), name="b"),
    }


def test_members_keep_their_values_and_are_parts_of_the_whole() -> None:
    assert can_place()
    members = parameters()
    placed = Placed(ARENA, members)
    assert members["a"].data_ptr() % 64 == 0
    np.testing.assert_array_equal(members["a"].asnumpy(), np.arange(6).reshape(2, 3))
    whole = placed.whole.asnumpy()
    np.testing.assert_array_equal(whole, np.concatenate([np.arange(6), np.zeros(10), np.full(16, 7), np.zeros(16)]))
    ops.assign_add(placed.whole, ms.Tensor(np.ones(48, np.float32)))
    np.testing.assert_array_equal(members["a"].asnumpy(), np.arange(6).reshape(2, 3) + 1)
    ops.assign(members["b"], ms.Tensor(np.zeros(16, np.float32)))
    assert not placed.whole.asnumpy()[16:32].any()
    placed.check()


def test_a_member_that_was_given_other_memory_moves_back() -> None:
    members = parameters()
    placed = Placed(ARENA, members)
    members["a"].set_data(ms.Tensor(np.full((2, 3), 5, np.float32)))
    with pytest.raises(RuntimeFailure, match="gave state 'a' other memory"):
        placed.check()
    placed.move_in()
    placed.check()
    np.testing.assert_array_equal(placed.whole.asnumpy()[:6], np.full(6, 5))


def test_memory_lives_as_long_as_a_member() -> None:
    members = parameters()
    placed = Placed(ARENA, members)
    kept = members["a"]
    del members, placed
    gc.collect()
    filled = [np.full(64, 9, np.float32) for _ in range(1000)]
    np.testing.assert_array_equal(kept.asnumpy(), np.arange(6).reshape(2, 3))
    assert filled


def test_a_state_is_in_one_arena() -> None:
    arenas = Arenas()
    assert arenas.fits(["a", "b"], [0, 16], 32)
    first = arenas.of(["a", "b"], [0, 16], 32)
    assert arenas.of(["a", "b"], [0, 16], 32) is first
    assert arenas.fits(["b", "a"], [16, 0], 32)
    for names, begins, size in (
        (["a", "b"], [0, 32], 48),
        (["a", "b"], [0, 16], 48),
        (["a", "c"], [0, 16], 32),
        (["a"], [0], 16),
        (["c", "c"], [0, 16], 32),
    ):
        assert not arenas.fits(names, begins, size)
    assert arenas.of(["c", "d"], [0, 16], 32).name == "arena.1"


def placed_in(session: bc.Session) -> list[str]:
    return [*session._engine.context.arenas.by_name]


def test_what_is_loaded_into_the_cell_is_trained_from(exported: Exported) -> None:
    """MindSpore gives the Parameters other memory then, in the middle of a training."""
    program, batches = bc.load(str(exported("lenet_bn"))), CASES["lenet_bn"].batches(4)
    session = bc.Session(program)
    cell = session.cell
    session.step(*batches[0])
    start = {name: variable.initial for name, variable in program.state.items()}
    ms.load_param_into_net(cell, {n: ms.Parameter(ms.Tensor(v), name=n) for n, v in start.items()})
    assert_equal(session.state(), start)
    losses = [session.step(*batch).loss for batch in batches]
    assert placed_in(session)
    reference, state = native.train_steps(CASES["lenet_bn"], batches)
    assert losses == reference
    assert_equal({p.name: p.asnumpy() for p in cell.get_parameters()}, state)


def test_a_live_network_trained_by_turns() -> None:
    """By two sessions, and by MindSpore's own cell: each goes on from where the one before stopped."""
    case = CASES["lenet_bn"]
    batches = case.batches(6)
    built = build(case)
    weight = built.train_step.network.trainable_params()[0]
    first = bc.Session(built.train_step, inputs=batches[0])
    second = bc.Session(built.train_step, inputs=batches[0])
    own = [lambda *b, s=s: s.step(*b).loss for s in (first, second)]
    own.append(lambda *b: float(built.train_step(*map(ms.Tensor, b)).asnumpy()))
    losses = [own[i % 3](*batch) for i, batch in enumerate(batches)]
    assert placed_in(first)
    assert placed_in(second)
    reference, state = native.train_steps(case, batches)
    assert losses == reference
    assert_equal(state_of(built.train_step), state)
    assert weight is built.train_step.network.trainable_params()[0]


def test_predictions_and_saved_states_of_the_trained_weights(exported: Exported, tmp_path: Path) -> None:
    program, batches = bc.load(str(exported("lenet_bn"))), CASES["lenet_bn"].batches(3)
    session = bc.Session(program)
    before = session.predict(batches[0][0])
    for batch in batches:
        session.step(*batch)
    session.save(tmp_path / "state.ckpt")
    again = bc.Session(program)
    again.step(*batches[0])
    again.load_state(tmp_path / "state.ckpt")
    assert placed_in(session)
    assert placed_in(again)
    assert_equal(again.state(), session.state())
    now = session.predict(batches[0][0])
    assert now.tobytes() == again.predict(batches[0][0]).tobytes() != before.tobytes()
    for part in (session, again):
        part.step(*batches[0])
    assert_equal(again.state(), session.state())


def test_a_state_that_moves_while_a_graph_runs_is_named(exported: Exported, monkeypatch: pytest.MonkeyPatch) -> None:
    program, batch = bc.load(str(exported("lenet_bn"))), CASES["lenet_bn"].batches(1)[0]
    session = bc.Session(program)
    call = engine.Engine.call

    def moving(self: Any, runner: Any, graph: Any, inputs: Any) -> Any:
        results = call(self, runner, graph, inputs)
        weight = self.parameters["conv1.weight"]
        weight.set_data(ms.Tensor(weight.asnumpy().copy()))
        return results

    monkeypatch.setattr(engine.Engine, "call", moving)
    with pytest.raises(bc.Error, match=r"MindSpore gave state 'conv1\.weight' other memory"):
        session.step(*batch)


def test_what_an_overflow_leaves_between_accumulators_goes_with_them(exported: Exported) -> None:
    """A cycle that finds NaN there is skipped, and the next one is not."""
    program = bc.compile(bc.load(str(exported("lenet_bn"))), "gradient-accumulation{steps=2},overflow-check")
    batches = CASES["lenet_bn"].batches(4)
    session = bc.Session(program)
    arenas, placing = session._engine.context.arenas.by_name, session._engine._placing
    (sums,) = (name for name, arena in arenas.items() if any(member.startswith("accum.") for member in arena.begins))
    placed = placing._placed[sums]
    used = np.zeros(arenas[sums].size, bool)
    for name, begin in arenas[sums].begins.items():
        used[begin : begin + program.state[name].type.size] = True
    placed.memory[~used] = np.nan
    weight = program.state["conv1.weight"].initial.copy()
    for batch in batches[:2]:
        session.step(*batch)
    assert session.state()["conv1.weight"].tobytes() == weight.tobytes()
    assert not placed.memory.any()
    for batch in batches[2:]:
        session.step(*batch)
    assert session.state()["conv1.weight"].tobytes() != weight.tobytes()


def test_where_memory_cannot_be_placed_nothing_is(exported: Exported, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "can_place", lambda: False)
    program, batches = bc.load(str(exported("lenet_bn"))), CASES["lenet_bn"].batches(2)
    session = bc.Session(program)
    losses = [session.step(*batch).loss for batch in batches]
    assert not placed_in(session)
    assert losses == native.train_steps(CASES["lenet_bn"], batches)[0]


def test_a_cell_that_the_user_compiled_before_sees_what_is_trained() -> None:
    case = CASES["lenet_bn"]
    built = build(case)
    network = next(cell for _, cell in built.train_step.cells_and_names() if isinstance(cell, nn.Conv2d))
    batch = case.batches(1)[0]
    images = ms.Tensor(batch[0])
    before = network(images).asnumpy()
    session = bc.Session(built.train_step, inputs=batch)
    session.step(*batch)
    after = network(images).asnumpy()
    assert placed_in(session)
    assert before.tobytes() != after.tobytes()


def test_a_live_network_with_loops_keeps_its_memory() -> None:
    """Its compiled Cell would not see that it moved."""
    case = CASES["loop"]
    batches = case.batches(2)
    built = build(case)
    session = bc.Session(bc.compile(bc.capture(built.train_step, *batches[0]), "gradient-accumulation{steps=2}"))
    assert not session._engine.context.places
    assert not bc.Session(session.program, beside=session)._engine.context.places
    assert bc.Session(bc.load(str(export_once("loop", zoo_folder()))))._engine.context.places


@pytest.mark.parametrize("pipeline", ["overflow-check", "overflow-check,clip-gradients,gradient-accumulation{steps=2}"])
def test_a_live_network_whose_updates_may_be_skipped(pipeline: str) -> None:
    """The Switch is that of the pass."""
    case = CASES["lenet_bn"]
    batches = case.batches(4)
    built = build(case)
    session = bc.Session(bc.compile(bc.capture(built.train_step, *batches[0]), pipeline))
    program = bc.compile(bc.load(str(export_once("lenet_bn", zoo_folder()))), pipeline)
    other = bc.Session(program)
    for batch in batches:
        assert session.step(*batch).loss == other.step(*batch).loss
    assert placed_in(session)
    assert_equal(session.state(), other.state())


def test_sessions_that_share_their_state_know_who_has_it(exported: Exported) -> None:
    program, batches = bc.load(str(exported("lenet_bn"))), CASES["lenet_bn"].batches(4)
    first = bc.Session(program)
    second = bc.Session(program, beside=first)
    start = {name: variable.initial for name, variable in program.state.items()}
    first.step(*batches[0])
    ms.load_param_into_net(second.cell, {n: ms.Parameter(ms.Tensor(v), name=n) for n, v in start.items()})
    losses = [session.step(*batch).loss for batch, session in zip(batches, (first, second) * 2, strict=True)]
    reference, state = native.train_steps(CASES["lenet_bn"], batches)
    assert losses == reference
    assert_equal(first.state(), state)
    assert_equal(second.state(), state)
