"""Small states that are updated at once: the bits of updates one by one, and what has to stay as it is."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from boost_compile.ir.builders.packing import places
from boost_compile.ir.core.graph import tensor_type
from boost_compile.ir.text import parse_program, print_program
from boost_compile.ir.verify.verifier import verify
from boost_compile.runtime.lowering import joint_updates, packing
from boost_compile.runtime.lowering.arenas import ALIGNED
from boost_compile.runtime.lowering.context import Context
from boost_compile.runtime.lowering.lower import Lowered, lower

import boost_compile as bc
from tests.compare import assert_equal
from tests.networks import CASES

Exported = Callable[[str], Path]
SHAPES = {"a": (2, 3), "b": (16,), "c": (5,), "d": (4, 4), "e": (7,), "f": (3,)}
"""Weights, none of a multiple of eight elements but two: the rest of each is computed by other instructions."""


def lowered(program: bc.Program) -> dict[str, Lowered]:
    """As a session loads them: the last graph first."""
    context = Context(program, "cpu")
    return {name: lower(program.graphs[name], context) for name in reversed([*program.schedule.graphs()])}


def joined(program: bc.Program) -> dict[str, str]:
    return {name: dict(found.steps).get("joint-updates", "") for name, found in lowered(program).items()}


def one_by_one(program: bc.Program, monkeypatch: pytest.MonkeyPatch) -> bc.Session:
    """A session whose states are updated one by one."""
    with monkeypatch.context() as patch:
        patch.setattr(joint_updates, "applies", lambda graph, context: False)
        patch.setattr(packing, "kinds_of_updates", lambda graph, context: {})
        return bc.Session(program)


@pytest.mark.parametrize(
    ("name", "pipeline", "steps"),
    [
        ("lenet_bn", "effect-chain-minimization", {"step": "11 small updates made as 1"}),
        ("gpt", "effect-chain-minimization", {"step": "37 small updates made as 2"}),
        (
            "gpt",
            "gradient-accumulation{steps=2}",
            {"accumulate": "37 small updates made as 2", "apply": "37 small updates made as 2"},
        ),
        # Adam rounds the last elements of a tensor otherwise, so the bias of four stays.
        ("lstm", "gradient-accumulation{steps=2}", {"apply": "5 small updates made as 1"}),
        ("lenet_bn_adam", "overflow-check", {"step": "7 small updates made as 1"}),
        (
            "lenet_bn",
            "gradient-accumulation{steps=2,split=fused},overflow-check,weight-average{kind=ema,decay=0.9}",
            {"accumulate": "11 small updates made as 1", "step": "11 small updates made as 1"},
        ),
        (
            "lenet_bn",
            "gradient-accumulation{steps=2},loss-scale{init=1024},overflow-check",
            {"accumulate": "11 small updates made as 1", "apply": "11 small updates made as 1"},
        ),
    ],
)
def test_the_bits_of_updates_one_by_one(
    exported: Exported, name: str, pipeline: str, steps: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    program = bc.compile(bc.load(str(exported(name))), pipeline)
    found = joined(program)
    assert {graph: found[graph] for graph in steps} == steps
    ours, each = bc.Session(program), one_by_one(program, monkeypatch)
    for batch in CASES[name].batches(6):
        assert ours.step(*batch).loss == each.step(*batch).loss
    assert_equal(ours.state(), each.state())


def test_an_overflow_leaves_every_bit(exported: Exported, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that spoils a single gradient, as the others are joined with it."""
    program = bc.compile(bc.load(str(exported("lenet_bn"))), "overflow-check,loss-scale{init=1024}")
    ours, each = bc.Session(program), one_by_one(program, monkeypatch)
    batches = CASES["lenet_bn"].batches(4)
    spoiled = (np.full_like(batches[1][0], np.inf), *batches[1][1:])
    for batch in (batches[0], spoiled, *batches[2:]):
        ours.step(*batch), each.step(*batch)
    assert_equal(ours.state(), each.state())
    assert np.isfinite(ours.state()["conv1.weight"]).all()


def test_a_measured_row_is_the_row_that_updates(exported: Exported) -> None:
    """What is measured and scaled as one tensor is not taken apart for the update."""
    program = bc.compile(bc.load(str(exported("lenet_bn"))), "overflow-check,loss-scale,clip-gradients")
    graph = lowered(program)["step"].graph
    count = Counter(node.op.name for node in graph)
    assert (count["Concat"], count["ApplyMomentum"]) == (1, 1)
    assert count["Slice"] <= 1


# -- what stays as it is ----------------------------------------------------------------------------------------

TYPES = {name: f"float32[{','.join(map(str, shape))}]" for name, shape in SHAPES.items()}
HEAD = "".join(f"state %{n}: {t} role=weight\nstate %s{n}: {t} role=slot\n" for n, t in TYPES.items())
HEAD += "".join(f"state %{name}: float32[] role=hyperparameter\n" for name in ("rate", "other", "kept"))
INPUTS = ", ".join(f"%g{n}: {t}" for n, t in TYPES.items())
SUM_OF_C = "%l = Load(%c, %uc)\n%n = ReduceSum(%l, (), false, false) : float32[]\n"


SCALED = {n: f"m{n}" for n in SHAPES}


def scaled(by: str, names: str = "abcdef") -> str:
    return "".join(f"%m{n} = Mul(%g{n}, %{by}) : {TYPES[n]}\n" for n in names)


def rows(names: str, multiple: int, longer: int = 0) -> str:
    """Each gradient is a part of one row, which is computed of another."""
    begins, end = places((int(np.prod(SHAPES[n])) for n in names), multiple)
    times = end + longer
    lines = [f"%row = Tile(%gc, ({times},)) : float32[{5 * times}]"]
    for n, begin in zip(names, begins, strict=True):
        size = int(np.prod(SHAPES[n]))
        lines.append(f"%p{n}.row = Slice(%row, ({begin},), ({size},)) : float32[{size}]")
        lines.append(f"%m{n} = Reshape(%p{n}.row, {SHAPES[n]}) : {TYPES[n]}")
    return "\n".join(lines)


def program_with(
    before: str = "",
    rates: Mapping[str, str] = {},
    gradients: Mapping[str, str] = {},
    behind: str = "",
    end: str = "",
    start: str = "umonad",
    result: str = "%loss",
) -> bc.Program:
    """Six updates. ``behind`` stands behind that of c, takes its token %uc, and makes the next one, %v; so does
    ``end`` behind the last one. ``start``: the first token."""
    lines = [f"graph @step({INPUTS}) -> (loss) {{", "%loss = ReduceSum(%gb, (), false, false) : float32[]", before]
    token = start
    for n, kind in TYPES.items():
        of = (f"%{n}", f"%s{n}", f"%{rates.get(n, 'rate')}", f"%{gradients.get(n, 'g' + n)}", "%kept", token)
        lines.append(f"%p{n} = ApplyMomentum({', '.join(of)}) : {kind}@{n}\n%u{n} = UpdateState({token}, %p{n})")
        token = f"%u{n}"
        if then := {"c": behind, "f": end}.get(n, ""):
            lines.append(then)
            token = "%v"
    lines += [f"%r = Depend({result}, {token})", "return %r", "}"]
    return parse_program(HEAD + "\n".join(line for line in lines if line))


@pytest.mark.parametrize(
    ("given", "updates"),
    [
        ({}, 6),
        # Read behind its update: that of the others is late.
        ({"behind": SUM_OF_C + "%v = UpdateState(%uc, %l, %n)", "result": "%n"}, 5),
        # Returned: the caller may see it change, as it does here where nothing is joined.
        ({"before": "%l = Load(%c, umonad)", "result": "%l"}, 5),
        # Another rate for two: four are too few.
        ({"rates": {"a": "other", "b": "other"}}, 0),
        ({"rates": {"a": "other"}}, 5),
        # A rate that changes between the updates.
        ({"behind": "%x = Assign(%rate, float32[]<0.5>, %uc)\n%v = UpdateState(%uc, %x)"}, 0),
        # A gradient that is computed of a weight that was updated.
        ({"behind": SUM_OF_C + "%gg = Mul(%gf, %n) : float32[3]\n%v = UpdateState(%uc, %l, %n)",
          "gradients": {"f": "gg"}}, 0),
        # Something else writes it.
        ({"behind": "%x = AssignSub(%c, %gc, %uc)\n%v = UpdateState(%uc, %x)"}, 5),
        ({"behind": "%x = Assign(%c, %gc, %uc)\n%v = UpdateState(%uc, %x)"}, 5),
        ({"before": "%x = Assign(%c, %gc, umonad)\n%ux = UpdateState(umonad, %x)", "start": "%ux"}, 5),
        # A rate that changes behind the updates.
        ({"end": "%x = Assign(%rate, float32[]<0.5>, %uf)\n%v = UpdateState(%uf, %x)"}, 6),
        # One gradient for two weights is taken twice.
        ({"gradients": {"d": "square"}, "before": "%square = Reshape(%gb, (4, 4)) : float32[4,4]"}, 6),
        # Gradients that are scaled by one number, by two, and for others too.
        ({"before": scaled("kept"), "gradients": SCALED}, 6),
        ({"before": scaled("kept", "abc") + scaled("other", "def"), "gradients": SCALED}, 6),
        ({"before": scaled("kept") + "%m = ReduceSum(%mb, (), false, false) : float32[]", "gradients": SCALED,
          "result": "%m"}, 6),
        # Parts of one row, in the order of the weights or another, with room in between or without.
        ({"before": rows("abcdef", 16), "gradients": SCALED}, 6),
        ({"before": rows("fedcba", 16), "gradients": SCALED}, 6),
        ({"before": rows("abcdef", 1), "gradients": SCALED}, 6),
        ({"before": rows("abcdef", 32), "gradients": SCALED}, 6),
    ],
)  # fmt: skip
def test_what_is_joined_and_that_it_is_right(
    given: Mapping[str, object], updates: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = program_with(**given)  # type: ignore[arg-type]
    verify(program.graphs["step"])
    count = Counter(node.op.name for node in lowered(program)["step"].graph)
    assert count["ApplyMomentum"] == (7 - updates if updates else 6)
    rng = np.random.default_rng(0)
    ours, each = bc.Session(program), one_by_one(program, monkeypatch)
    start = {name: rng.standard_normal(v.shape).astype(np.float32) for name, v in program.state.items()}
    ours.load_state(start), each.load_state(start)
    for _ in range(3):
        batch = [rng.standard_normal(shape).astype(np.float32) for shape in SHAPES.values()]
        mine, its = (session.step(*batch).raw["loss"].asnumpy() for session in (ours, each))
        assert given.get("result") == "%l" or mine.tobytes() == its.tobytes()
    assert_equal(ours.state(), each.state())


@pytest.mark.parametrize(
    ("before", "slices", "size"),
    [
        (rows("abcdef", 16), 0, 5 * 96),
        (rows("abcdef", 16, longer=128), 0, 5 * (96 + 128)),
        (rows("abcdef", 16, longer=129), 1, 96),
        (rows("abcdef", 1), 6, 96),
        (rows("abcdef", 16) + "\n%s = Slice(%row, (96,), (3,)) : float32[3]", 2, 96),
    ],
)
def test_a_row_is_taken_with_some_room_at_its_end(before: str, slices: int, size: int) -> None:
    """Unless it has much of it, or parts of others there."""
    result = "%m" if "%s =" in before else "%loss"
    before += "\n%m = ReduceSum(%s, (), false, false) : float32[]" if result == "%m" else ""
    graph = lowered(program_with(before=before, gradients=SCALED, result=result))["step"].graph
    assert Counter(node.op.name for node in graph)["Slice"] == slices
    assert {tensor_type(node.operand(0)).size for node in graph if node.op.name == "ApplyMomentum"} == {size}


def test_a_product_that_others_take_stays() -> None:
    more = "".join(f"%n{n} = ReduceSum(%m{n}, (), false, false) : float32[]\n" for n in SHAPES)
    more += f"%all = MakeTuple({', '.join(f'%n{n}' for n in SHAPES)})\n%sum = AddN(%all) : float32[]\n"
    program = program_with(before=scaled("kept") + more, gradients=SCALED, result="%sum")
    count = Counter(node.op.name for node in lowered(program)["step"].graph)
    assert [count[name] for name in ("Mul", "Concat", "ApplyMomentum")] == [6, 1, 1]


def test_a_row_that_is_measured_in_another_order_is_taken_as_it_is() -> None:
    sums = "".join(f"%q{n} = Square(%m{n})\n%t{n} = ReduceSum(%q{n}, (), false, false) : float32[]\n" for n in SHAPES)
    terms = f"%all = MakeTuple({', '.join(f'%t{n}' for n in reversed(SHAPES))})\n"
    total = "%total = AddN(%all) : float32[] marks {squares = true}\n"
    scale = "".join(f"%s{n}.g = Mul(%m{n}, %total) : {TYPES[n]}\n" for n in SHAPES)
    program = program_with(
        before=scaled("kept") + sums + terms + total + scale, gradients={n: f"s{n}.g" for n in SHAPES}
    )
    count = Counter(node.op.name for node in lowered(program)["step"].graph)
    assert [count[name] for name in ("Concat", "Slice", "ApplyMomentum", "Mul")] == [1, 0, 1, 2]


CYCLE = """program @cycle {{
  schedule @add, @update
}}
{head}
graph @add({inputs}) -> (loss) {{
%loss = ReduceSum(%gb, (), false, false) : float32[]
{add}
%r = Depend(%loss, {last})
return %r
}}
graph @update() -> (done) {{
{update}
%done = Neg(float32[]<1.0>) : float32[]
%r = Depend(%done, {end})
return %r
}}
"""


def cycle(order: str) -> bc.Program:
    """Six accumulators, added to in the order of the weights, and updates in another one."""
    add, update, token = [], [], "umonad"
    for n in TYPES:
        add.append(f"%x{n} = AssignAdd(%s{n}, %g{n}, {token})\n%u{n} = UpdateState({token}, %x{n})")
        token = f"%u{n}"
    last, token = token, "umonad"
    for n in order:
        of = (f"%{n}", f"%y{n}", token)
        update.append(f"%l{n} = Load(%s{n}, umonad) : {TYPES[n]}\n%y{n} = Mul(%l{n}, float32[]<0.5>) : {TYPES[n]}")
        update.append(f"%z{n} = AssignSub({', '.join(of)})\n%w{n} = UpdateState({token}, %z{n})")
        token = f"%w{n}"
    given = {"add": "\n".join(add), "update": "\n".join(update), "last": last, "end": token}
    return parse_program(CYCLE.format(head=HEAD.replace("slot", "accumulator"), inputs=INPUTS, **given))


def assert_trained_alike(program: bc.Program, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, each = bc.Session(program), one_by_one(program, monkeypatch)
    rng = np.random.default_rng(0)
    for _ in range(4):
        batch = [rng.standard_normal(shape).astype(np.float32) for shape in SHAPES.values()]
        ours.step(*batch), each.step(*batch)
    assert_equal(ours.state(), each.state())


@pytest.mark.parametrize("order", ["abcdef", "fbdace"])
def test_accumulators_stand_as_their_weights(order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = cycle(order)
    graphs = {name: Counter(node.op.name for node in found.graph) for name, found in lowered(program).items()}
    assert [graphs["add"][name] for name in ("AssignAdd", "Concat")] == [1, 1]
    assert [graphs["update"][name] for name in ("AssignSub", "Load", "Mul", "Concat")] == [1, 1, 1, 0]
    assert_trained_alike(program, monkeypatch)


@pytest.mark.parametrize("room", [0, 13])
def test_a_row_without_room_behind_it_is_no_arena(room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It could not take what is added up; with room behind the last one, it can."""
    program = cycle("abcdef")
    text = print_program(program)
    row = "".join(f"%k{n} = Reshape(%l{n}, ({np.prod(s)},)) : float32[{np.prod(s)}]\n" for n, s in SHAPES.items())
    gaps = {n: f", float32[{-np.prod(s) % 16}]<zeros>" for n, s in SHAPES.items() if np.prod(s) % 16 and n != "f"}
    terms = ", ".join(f"%k{n}{gaps.get(n, '')}" for n in SHAPES)
    terms += f", float32[{room}]<zeros>" if room else ""
    row += f"%z = MakeTuple({terms})\n%cat = Concat(%z, 0) : float32[{83 + room}]\n"
    done = "%done = ReduceSum(%cat, (), false, false) : float32[]"
    text = re.sub(r" *%done = Neg.*", row + done, text)
    program = parse_program(text)
    context = Context(program, "cpu")
    for name in ("update", "add"):
        lower(program.graphs[name], context)
    assert all(arena.size == 96 for arena in context.arenas.by_name.values())
    assert_trained_alike(program, monkeypatch)


FIVE = "".join(f"state %a{i}: float32[16] role=weight\nstate %b{i}: float32[16] role={{role}}\n" for i in range(5))


@pytest.mark.parametrize("between", ["", "float32[16]<zeros>, ", f"float32[16]<{', '.join(['1', '2'] * 8)}>, "])
@pytest.mark.parametrize(("role", "written"), [("accumulator", False), ("accumulator", True), ("statistic", False)])
def test_a_row_of_states_that_the_network_joins_itself(between: str, role: str, written: bool) -> None:
    loads = "".join(f"%l{i} = Load(%b{i}, umonad) : float32[16]\n" for i in range(5))
    terms = between.join(f"%l{i}, " for i in range(5)).rstrip(", ")
    size = 80 + 64 * bool(between)
    updates, token = "%read = UpdateState(umonad, %all, %cat)\n", "%read"
    for i in range(5):
        updates += f"%p{i} = AssignSub(%a{i}, %x, {token})\n%u{i} = UpdateState({token}, %p{i})\n"
        token = f"%u{i}"
        if written:
            updates += f"%q{i} = Assign(%b{i}, %x, {token})\n%v{i} = UpdateState({token}, %q{i})\n"
            token = f"%v{i}"
    program = parse_program(
        f"{FIVE.format(role=role)}graph @step(%x: float32[16]) -> (row) {{\n{loads}%all = MakeTuple({terms})\n"
        f"%cat = Concat(%all, 0) : float32[{size}]\n%row = Mul(%cat, float32[]<2.0>) : float32[{size}]\n{updates}"
        f"%r = Depend(%row, {token})\nreturn %r\n}}\n"
    )
    (found,) = lowered(program).values()
    assert dict(found.steps)["joint-updates"] == "5 small updates made as 1"
    at_once = (role, written, between) == ("accumulator", False, "")
    assert sum(node.op.name == "Load" for node in found.graph) == (1 if at_once else 5)
    session, rng = bc.Session(program), np.random.default_rng(0)
    state = {name: rng.standard_normal(v.shape).astype(np.float32) for name, v in program.state.items()}
    session.load_state(state)
    filled = [] if not between else [np.zeros(16) if "zeros" in between else np.tile([1, 2], 8)]
    for _ in range(3):
        x = rng.standard_normal(16).astype(np.float32)
        row = [part for i in range(5) for part in (*(filled if i else ()), state[f"b{i}"])]
        result = session.step(x).raw["row"].asnumpy()
        np.testing.assert_array_equal(result, 2 * np.concatenate(row).astype(np.float32))
        state |= {f"a{i}": state[f"a{i}"] - x for i in range(5)}
        state |= {f"b{i}": x for i in range(5)} if written else {}
    assert_equal(session.state(), state)


def test_a_graph_with_control_flow_stays() -> None:
    """Its functions may read states at any time."""
    function = "\n  func @half(%v: float32[16]) {\n    %h = Mul(%v, float32[]<0.5>)\n    return %h\n  }\n}"
    text = print_program(program_with(before="%y = Mul(%gb, %gb) : float32[16]", gradients={"b": "y"}))
    text = text.replace("%y = Mul(%gb, %gb)", "%y = call(@half, %gb)")
    program = parse_program(text[: text.rindex("}")] + function)
    assert program.graphs["step"].functions
    assert joined(program) == {"step": ""}


def test_what_one_rank_holds_alone_stays() -> None:
    program = program_with()
    context = Context(program, "cpu", rank=0, ranks=2)
    assert lower(program.graphs["step"], context, [joint_updates]).steps == (
        ("joint-updates", "6 small updates made as 1"),
    )
    context = Context(program, "cpu", rank=0, ranks=2)
    vars(context)["holders"] = {"c": 1}
    assert lower(program.graphs["step"], context, [joint_updates]).steps == (
        ("joint-updates", "5 small updates made as 1"),
    )
    assert "c" not in context.arenas.holding


@pytest.mark.parametrize("target", ["gpu", "ascend"])
def test_other_targets(target: str) -> None:
    program = program_with()
    assert "joint-updates" not in dict(lower(program.graphs["step"], Context(program, target)).steps)


def test_memory_that_nobody_can_place() -> None:
    program = program_with()
    assert "joint-updates" not in dict(lower(program.graphs["step"], Context(program, "cpu", places=False)).steps)


def test_each_begins_at_a_line_of_the_cache() -> None:
    program = program_with()
    context = Context(program, "cpu")
    lower(program.graphs["step"], context)
    weights, slots = context.arenas.by_name.values()
    assert list(weights.begins) == [*SHAPES]
    assert list(slots.begins) == [f"s{n}" for n in SHAPES]
    assert [*weights.begins.values()] == [0, 16, 32, 48, 64, 80] == [*slots.begins.values()]
    assert weights.size == 96
    assert not any(begin % ALIGNED for begin in weights.begins.values())
