"""Sharded optimizer state in a program: what is dealt out and what is not, and ranks that run in numpy.

The judge is data-parallel on the same ranks, bit by bit, whatever order the tokens leave open.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from boost_compile.ir.core.data import ZeroData, from_numpy
from boost_compile.ir.core.errors import PassError
from boost_compile.ir.core.graph import tensor_type
from boost_compile.ir.core.names import OWNED
from boost_compile.ir.core.program import Program, StateVariable
from boost_compile.ir.core.types import TupleType
from boost_compile.ir.formats.storage.load import load
from boost_compile.ir.rewrite.ranks import messages
from boost_compile.ir.rewrite.ranks.collectives import collectives
from boost_compile.ir.rewrite.ranks.dealing import bytes_of_ranks, deal, owned_states
from boost_compile.ir.rewrite.ranks.ownership import keep_own
from boost_compile.ir.text import parse_program, print_program
from boost_compile.ir.verify.verifier import verify
from boost_compile.passes import compile_program
from boost_compile.runtime.lowering.context import Context
from boost_compile.tools.compile import command as compile_command

from tests.execution import ORDERS, Arrays, train, train_ranks
from tests.material import HERE, batches, values
from tests.passes.graphs import source
from tests.tools.support import assert_one_error, shell

FIRST, SECOND = "data-parallel,shard-optimizer", "data-parallel,shard-optimizer{stage=2}"
TWO = "gradient-accumulation{steps=2}"
FUSED = "gradient-accumulation{steps=2,split=fused}"
CLIP = "clip-gradients{limit=0.05,report_norm=true}"
SCALE = "loss-scale{init=8,window=2}"


def compiled(name: str, *pipelines: str) -> Program:
    program = source(name)
    for pipeline in pipelines:
        program = compile_program(program, pipeline, reproducer_directory=None)
    return program


def for_rank(program: Program, rank: int, ranks: int) -> Program:
    """The graphs as the runtime writes them out, over the state that the rank holds."""
    own = program.copy()
    dealt = deal(program, ranks)
    for graph in own.graphs.values():
        if any(name in dealt.holders or name in dealt.pieces(rank) for name in graph.states):
            keep_own(graph, program, rank, ranks, program.target)
    own.state = {n: v for n, v in own.state.items() if dealt.holders.get(n, rank) == rank}
    for name, piece in dealt.pieces(rank).items():
        variable = own.state[name]
        type_, data = from_numpy(variable.initial.reshape(-1)[piece])
        own.state[name] = replace(variable, type=type_, data=data)
    for graph in own.graphs.values():
        for name, copy in graph.states.items():
            if name not in own.state:
                own.state[name] = StateVariable(name, tensor_type(copy), ZeroData(tensor_type(copy).nbytes))
    verify(own)
    return own


def on_ranks(program: Program, state: Arrays, given: list[list[np.ndarray]], ranks: int, order: object) -> list[Arrays]:
    """What each rank holds afterwards, of states that are dealt out its part."""
    parts = [given[rank::ranks] for rank in range(ranks)]
    programs = [for_rank(program, rank, ranks) for rank in range(ranks)]
    states = [state | parts_of(program, state, rank, ranks) for rank in range(ranks)]
    trained = train_ranks(programs, states, parts, order)
    return [{n: v for n, v in memory.items() if n in program.state} for _, memory in trained]


def parts_of(program: Program, state: Arrays, rank: int, ranks: int) -> Arrays:
    """The pieces that a rank holds of states that are cut."""
    return {name: state[name].reshape(-1)[piece] for name, piece in deal(program, ranks).pieces(rank).items()}


def overflowing(given: list[list[np.ndarray]], at: int) -> list[list[np.ndarray]]:
    """The micro-batch `at` has an infinity."""
    given[at][0] = given[at][0].copy()
    given[at][0].flat[0] = np.inf
    return given


@pytest.mark.parametrize("partition", ["whole", "flat"])
@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize(
    ("name", "pipeline", "bad"),
    [
        ("mlp", "", None),
        ("mlp_adam_decay", "", None),
        ("mlp_adam_decay", TWO, None),
        ("mlp_adam_decay", FUSED, None),
        ("mlp_loss_scale_dynamic", "", 5),
        ("mlp_adam_decay", f"{TWO},overflow-check,{SCALE}", 3),
        ("mlp_adam_decay", f"{TWO},overflow-check{{policy=skip-micro}}", 3),
        ("mlp_adam_decay", f"{TWO},{CLIP}", None),
        ("mlp_adam_decay", f"{FUSED},{CLIP},overflow-check", 3),
        ("mlp", f"{TWO},clip-gradients{{limit=0.05,each_rank=true}}", None),
        ("branch", "", None),
        ("mlp", "gradient-freeze{groups=2,total_steps=4}", None),
    ],
)
def test_states_have_the_bits_of_data_parallel(
    name: str, pipeline: str, bad: int | None, ranks: int, partition: str
) -> None:
    check_bits(name, pipeline, bad, ranks, partition)


def check_bits(
    name: str, pipeline: str, bad: int | None, ranks: int, partition: str = "whole", cuts: bool = True
) -> None:
    others = [pipeline] if pipeline else []
    plain = compiled(name, ",".join([*others, "data-parallel"]))
    sharded = compiled(name, ",".join([*others, f"{FIRST}{{partition={partition}}}"]))
    if partition != "whole" and cuts:
        assert deal(sharded, ranks).cut, "nothing was cut, so nothing was shown"
    given = batches(source(name), 4 * ranks)
    assert_bits(plain, sharded, ranks, given if bad is None else overflowing(given, bad))


def assert_bits(plain: Program, sharded: Program, ranks: int, given: list[list[np.ndarray]] | None = None) -> None:
    state = values(plain)
    given = batches(plain, 4 * ranks) if given is None else given
    with np.errstate(all="ignore"):
        wanted = train_ranks(plain, state, [given[r::ranks] for r in range(ranks)])
        for order in ORDERS[:2]:
            found = on_ranks(sharded, state, given, ranks, order)
            holders = deal(sharded, ranks).holders
            assert holders, "nothing was dealt out, so nothing was shown"
            for rank, memory in enumerate(found):
                whole = wanted[rank][1]
                expected = whole | parts_of(sharded, whole, rank, ranks)
                for state_name, value in memory.items():
                    np.testing.assert_array_equal(value, expected[state_name], err_msg=state_name)
                missing = {n for n in plain.state if n not in memory}
                assert missing == {n for n, holder in holders.items() if holder != rank}


def test_weights_travel_in_messages_of_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """On CPU a connection keeps a buffer for its largest message, so every rank gives as much in each as fits there.
    Other targets send the weights of each owner as a whole."""
    monkeypatch.setattr(messages, "MESSAGE", 40)
    program = compiled("mlp_adam_decay", FIRST)

    def sizes(target: str) -> list[int]:
        graph = program.copy().graphs["step"]
        keep_own(graph, program, 0, 2, target)
        sent = [node.operand(0).type for node in collectives(graph) if node.op.name in ("Broadcast", "AllGather")]
        return sorted((type_.elements[0] if isinstance(type_, TupleType) else type_).nbytes for type_ in sent)

    owner = deal(program, 2).owner
    rows = sorted(sum(program.state[w].nbytes for w in owner if owner[w] == rank) for rank in range(2))
    assert sizes("ascend") == rows
    assert sizes("cpu") == [rows[1] % 40, *[40] * (rows[1] // 40)]
    check_bits("mlp_adam_decay", "", None, 2)


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_rank_may_have_more_to_give_than_all_others(ranks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """While weights are frozen: some messages hold only what this rank has by itself, and some ranks have nothing."""
    monkeypatch.setattr(messages, "MESSAGE", 40)
    check_bits("mlp", "gradient-freeze{groups=2,total_steps=4}", None, ranks)


@pytest.mark.parametrize("partition", ["whole", "flat"])
@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("others", ["", "overflow-check", CLIP, f"{CLIP},overflow-check,{SCALE}"])
@pytest.mark.parametrize("split", [TWO, FUSED])
def test_stage_2_trains_as_the_sums_of_each_micro_batch(split: str, others: str, ranks: int, partition: str) -> None:
    """Bit by bit as ranks that sum each micro-batch and deal nothing out; up to rounding as data-parallel, which adds
    up the same gradients in another order."""
    name = "mlp_adam_decay"
    pipeline = ",".join(filter(None, [split, others]))
    second = f"data-parallel,shard-optimizer{{stage=2,partition={partition}}}"
    plain, sharded = compiled(name, f"{pipeline},data-parallel"), compiled(name, f"{pipeline},{second}")
    assert bool(deal(sharded, ranks).cut) == (partition == "flat")
    state, given = values(plain), batches(source(name), 4 * ranks)
    if "overflow" in others:
        given = overflowing(given, 3)
    whole = sharded.copy()
    for variable in whole.state.values():
        variable.info.pop(OWNED, None)
    with np.errstate(all="ignore"):
        wanted = train_ranks(plain, state, [given[r::ranks] for r in range(ranks)])
        undealt = train_ranks(whole, state, [given[r::ranks] for r in range(ranks)])
        found = on_ranks(sharded, state, given, ranks, ORDERS[0])
    held = deal(sharded, ranks).holders
    assert {sharded.state[n].role for n in held} == {"slot", "accumulator"}
    for rank, memory in enumerate(found):
        same, near = (whole | parts_of(sharded, whole, rank, ranks) for whole in (undealt[rank][1], wanted[rank][1]))
        for state_name, value in memory.items():
            np.testing.assert_array_equal(value, same[state_name], err_msg=state_name)
            np.testing.assert_allclose(value, near[state_name], rtol=0, atol=2e-6, err_msg=state_name)
        assert not any(n in memory for n, holder in held.items() if holder != rank)


def test_stage_2_of_a_cycle_of_one_is_stage_1() -> None:
    program = compiled("mlp_adam_decay", SECOND)
    (miss,) = [m for m in program.reports[-1].misses if m.site == "stage 2"]
    assert "no sums of a window" in miss.reason
    assert {v.role for v in program.state.values() if v.info.get(OWNED)} == {"slot"}


def test_a_process_by_itself_has_all_state() -> None:
    """And trains as without the pass."""
    for pipeline, stage in ((TWO, SECOND), (f"{TWO},{CLIP}", FIRST)):
        plain, sharded = (
            compiled("mlp_adam_decay", f"{pipeline},data-parallel"),
            compiled("mlp_adam_decay", f"{pipeline},{stage}"),
        )
        assert deal(sharded, 1).holders == {}
        state, given = values(plain), batches(source("mlp_adam_decay"), 4)
        wanted, found = train(plain, state, given)[1], train(sharded, state, given)[1]
        for name, value in wanted.items():
            np.testing.assert_array_equal(found[name], value, err_msg=name)


@pytest.mark.parametrize("partition", ["whole", "flat"])
def test_stage_1_exchanges_once_a_cycle_however_long_it_is(partition: str) -> None:
    """Counted in the graphs that rank 1 of 4 runs."""
    for steps in (2, 8):
        passes = f"gradient-accumulation{{steps={steps}}},{FIRST}{{partition={partition}}}"
        program = compiled("mlp_adam_decay", passes)
        graphs = for_rank(program, 1, 4).graphs
        assert [n.op.name for n in collectives(graphs["accumulate"])] == []
        kinds = [n.op.name for n in collectives(graphs["apply"])]
        assert kinds == ["AllReduce", "AllReduce", "AllGather"]  # gradients, the count of micro-batches, new weights


def test_gradients_of_a_cycle_are_summed_in_the_order_of_their_updates() -> None:
    """As with data-parallel alone, where a bucket stands among weights that travel alone: the first update need not
    wait for the last sum."""
    pipeline = f"{TWO},parameter-groups{{match=[hidden.bias,output.bias],fusion=1}},data-parallel{{fusion=0}}"

    def sums(program: Program) -> list[int]:
        found = [n for n in collectives(program.graphs["apply"]) if n.op.name == "AllReduce"]
        return [tensor_type(node).size for node in found]

    plain = sums(compiled("mlp_adam_decay", pipeline))
    assert plain.index(20) < len(plain) - 1  # 16 and 4 elements together; otherwise nothing is shown
    for rank in range(2):
        assert sums(for_rank(compiled("mlp_adam_decay", f"{pipeline},shard-optimizer"), rank, 2)) == plain


def test_each_rank_holds_a_like_part() -> None:
    """Sizes that differ a hundredfold: at most 5 % over the mean."""
    text = "".join(
        f"state %w{i}: float32[{n}] role=weight\nstate %m{i}: float32[{n}] role=slot\n"
        for i, n in enumerate(10 + 37 * k % 991 for k in range(60))
    )
    program = parse_program(f"{text}graph @step(%x: float32[2]) {{\n  return %x\n}}")
    for i in range(60):
        program.state[f"m{i}"].weight = f"w{i}"
        program.state[f"m{i}"].info[OWNED] = "whole"
    for ranks in (2, 4, 8):
        held = bytes_of_ranks(program, ranks)
        assert max(held) <= 1.05 * sum(held) / ranks
        assert sum(held) == sum(v.nbytes for v in program.state.values() if v.role == "slot")


def test_a_later_compilation_takes_it_out_and_puts_it_in_again() -> None:
    once = compiled("mlp_adam_decay", f"{TWO},overflow-check,{SECOND}")
    later = compiled("mlp_adam_decay", f"{TWO},{SECOND}", "overflow-check")
    assert {n for n, v in later.state.items() if v.info.get(OWNED)} == {
        n for n, v in once.state.items() if v.info.get(OWNED)
    }
    for name, graph in once.graphs.items():
        assert [n.op.name for n in collectives(later.graphs[name])] == [n.op.name for n in collectives(graph)]


def test_match_names_the_weights() -> None:
    program = compiled("mlp_adam_decay", "data-parallel,shard-optimizer{match=[*.weight,*.gamma]}")
    owned = {v.weight for v in program.state.values() if v.info.get(OWNED)}
    assert owned == {"hidden.weight", "output.weight"}
    misses = {m.site: m.reason for m in program.reports[-1].misses}
    assert misses["hidden.bias"] == "not named by match: every rank updates it"
    assert "no weight has such a name" in misses["*.gamma"]


@pytest.mark.parametrize(
    ("pipeline", "fragments"),
    [
        ("shard-optimizer", ["the ranks do not sum their gradients", "ask for data-parallel too"]),
        ("data-parallel,adasum,shard-optimizer", ["adasum lets groups of ranks", "leave one of the two out"]),
        ("data-parallel,shard-optimizer,adasum", ["leave one of the two out"]),
        ("data-parallel,shard-optimizer,weight-average", ["leave one of the two out"]),
        ("data-parallel,shard-optimizer{match=[nothing]}", ["no weight has such a name"]),
        ("data-parallel,shard-optimizer{stage=3}", ["option 'stage' must be at most 2, not 3"]),
        (
            "data-parallel,shard-optimizer{partition=rows}",
            ["option 'partition' cannot be rows (known: auto, flat, whole)"],
        ),
        (
            "replace-optimizer{to=lamb},data-parallel,shard-optimizer{partition=flat}",
            [
                "none can be updated in pieces, 'hidden.weight' because ReduceSum",
                "use partition=auto, or partition=whole",
            ],
        ),
    ],
)
def test_what_cannot_be_is_refused(
    pipeline: str, fragments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "out.boost"
    done = shell(capsys, compile_command, HERE / "mlp_adam_decay.ir", "--passes", pipeline, "-o", output)
    assert_one_error(done, "boost-compile", *fragments)
    assert list(tmp_path.iterdir()) == []


def test_no_slots_to_deal_out() -> None:
    with pytest.raises(PassError, match="has no optimizer state: there is nothing to share out"):
        compiled("STEP", FIRST)


def test_pieces_of_weights_of_any_size() -> None:
    """The last piece is shorter, where a weight has no multiple of 16 elements for each rank."""
    dealt = deal(compiled("lenet_bn", f"{FIRST}{{partition=auto}}"), 3)
    assert any(dealt.elements[weight] % dealt.cut[weight] for weight in dealt.cut)
    check_bits("lenet_bn", "", None, 3, "auto")


NORMS = "replace-optimizer{to=lamb}"


def test_auto_deals_out_whole_what_it_cannot_cut() -> None:
    program = compiled("mlp_adam_decay", f"{NORMS},data-parallel,shard-optimizer{{partition=auto}}")
    misses = {m.site: m.reason for m in program.reports[-1].misses}
    assert set(misses) == set(owned_states(program))
    assert all(reason.startswith("has one owner, whatever its size: ReduceSum in ") for reason in misses.values())
    assert not deal(program, 4).cut
    check_bits("mlp_adam_decay", NORMS, None, 2, "auto", cuts=False)


def test_a_slot_of_another_shape_keeps_its_weight_whole() -> None:
    program = source("mlp_adam_decay")
    program.state["moment2.hidden.weight"].weight = "output.weight"
    program = compile_program(program, f"{FIRST}{{partition=auto}}", reproducer_directory=None)
    modes = {v.weight: v.info[OWNED] for v in program.state.values() if v.info.get(OWNED)}
    misses = {m.site: m.reason for m in program.reports[-1].misses}
    assert set(modes.values()) <= {"auto", "whole"}
    assert modes.get("hidden.bias") == "auto"
    assert "hidden.weight" in misses
    assert "output.weight" in misses


@pytest.mark.parametrize("partition", ["whole", "flat"])
def test_ranks_together_hold_what_is_dealt_out_once(partition: str) -> None:
    """Which is what each of them needs memory for."""
    program = compiled("mlp_adam_decay", f"{FIRST}{{partition={partition}}}")
    state, owned = program.state, [s for states in owned_states(program).values() for s in states]
    held = [Context(program, "cpu", rank, 4) for rank in range(4)]
    assert sum(rank.nbytes(s) for rank in held for s in owned) == sum(state[s].nbytes for s in owned)
    assert all(rank.nbytes(s) == state[s].nbytes for rank in held for s in state.keys() - set(owned))


def test_the_report_says_how_many_weights_are_cut() -> None:
    statistics = compiled("mlp_adam_decay", f"{FIRST}{{partition=auto}}").reports[-1].statistics
    assert [statistics[f"weights cut, {ranks} ranks"] for ranks in (2, 4, 8)] == [1, 2, 1]


@pytest.mark.parametrize("target", ["gpu", "ascend"])
@pytest.mark.parametrize("ranks", [2, 4])
def test_a_target_with_reduce_scatter_sums_pieces(target: str, ranks: int) -> None:
    """Where nothing else takes the sum, and it travels alone. CPU has no kernel for it."""
    alone = f"legalize{{target={target}}},data-parallel{{fusion=0}},shard-optimizer{{partition=flat}}"
    program = compiled("mlp_adam_decay", alone)
    cut = deal(program, ranks).cut
    kinds = [n.op.name for n in collectives(for_rank(program, 1, ranks).graphs["step"])]
    assert kinds.count("ReduceScatter") == kinds.count("AllGather") == len(cut) > 0
    assert kinds.count("AllReduce") == 1 + len(owned_states(program)) - len(cut)
    normed = compiled("mlp_adam_decay", f"{CLIP},{alone.replace('fusion=0', 'fusion=0,mean=false')}")
    clipped = [n.op.name for n in collectives(for_rank(normed, 1, ranks).graphs["step"])]
    assert "ReduceScatter" not in clipped
    assert_bits(compiled("mlp_adam_decay", alone.rpartition(",")[0]), program, ranks)


def test_an_update_whose_slot_others_take_stays_on_every_rank(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And the report of the command says so."""
    program = source("SLOT_SHOWN")
    for slot, weight in (("a", "v"), ("b", "w")):
        program.state[slot].role, program.state[slot].weight = "slot", weight
    (tmp_path / "shown.ir").write_text(print_program(program))
    output = tmp_path / "out.boost"
    done = shell(capsys, compile_command, tmp_path / "shown.ir", "--passes", FIRST, "-o", output, "--json")
    assert done.code == 0, done.err
    assert {v.weight for v in load(output).state.values() if v.info.get(OWNED)} == {"v"}
    (miss,) = done.document["passes"][-1]["misses"]
    assert miss["site"] == "w"
    assert miss["reason"].startswith("every rank updates it: ")
    assert "seen" in miss["reason"]
