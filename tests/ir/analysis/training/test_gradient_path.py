"""The path of a gradient, stage by stage, through what exporters and passes put on it."""

from __future__ import annotations

import pytest
from boost_compile.ir.analysis.training import gradient_path
from boost_compile.ir.analysis.training.gradient_path import gradient_paths, updating_graphs
from boost_compile.ir.analysis.training.stages import GradientPath, Point, in_order
from boost_compile.ir.core.errors import AnatomyError
from boost_compile.ir.core.graph import Graph
from boost_compile.ir.rewrite.stages import put, summed
from boost_compile.passes import compile_program

from tests.graphs import graph, node
from tests.ir.worked import worked
from tests.material import material

STEP = """
state %w: float32[2]
state %m: float32[2]
state %rate: float32[]
state %scale: float32[]
graph @step(%x: float32[2]) {
  %w0 = Load(%w, umonad) @f
  %y = Mul(%w0, %x) @f
  %loss = ReduceSum(%y, (), false) @f
  %g = Mul(%x, %x) @b
BODY
  %u = UpdateState(umonad, %y)
  %up = UPDATE
  %end = UpdateState(%u, %up)
  %r = Depend(%loss, %end)
  return %r
}"""
MOMENTUM = "ApplyMomentum(%w, %m, %rate, %to, %rate, %u) : float32[2]"


def path(body: str, update: str = MOMENTUM) -> tuple[Graph, GradientPath]:
    g = graph(STEP.replace("BODY", body).replace("UPDATE", update))
    (found,) = gradient_paths(g)
    return g, found


def stages(found: GradientPath) -> list[str]:
    return [point.stage for point in found.points]


def names(point: Point) -> list[str]:
    return [value.name for value in point.values]


SQUARES = "%sq = Square(%g)\n%sum = ReduceSum(%sq, (), false)\n%norm = Sqrt(%sum)\n"
ONE_STAGE = {
    "unscaled": ("%s0 = Load(%scale, umonad)\n%to = RealDiv(%g, %s0)", ["", "unscale"]),
    "scaled by the reciprocal": (
        "%s0 = Load(%scale, umonad)\n%i = Reciprocal(%s0) : float32[]\n%to = Mul(%g, %i)",
        ["", "unscale"],
    ),
    "reduced": ("%to = AllReduce(%g)", ["", "all-reduce"]),
    "cast": ("%c = Cast(%g, 42) : float16[2]\n%to = Cast(%c, 43) : float32[2]", ["", "", ""]),
    "clipped by value": ("%to = ClipByValue(%g, float32[]<-1.0>, float32[]<1.0>) : float32[2]", ["", "clip"]),
    "clipped by norm": (SQUARES + "%to = RealDiv(%g, %norm)", ["", "clip"]),
    "decayed": ("%d = Mul(%w0, float32[]<0.1>)\n%p = MakeTuple(%g, %d)\n%to = AddN(%p)", ["", "weight-decay"]),
    "decayed by Add": ("%d = Mul(%w0, float32[]<0.1>)\n%to = Add(%d, %g)", ["", "weight-decay"]),
    "added to what is no weight": ("%to = Add(%g, %x)", [""]),
    "added to zeros": ("%z = ZerosLike(%g)\n%to = Add(%g, %z)", ["", ""]),
    "without its mean": ("%mean = ReduceMean(%g, (0,), true) : float32[1]\n%to = Sub(%g, %mean)", ["", "centralize"]),
    "taken away from its mean": ("%mean = ReduceMean(%g, (0,), true) : float32[1]\n%to = Sub(%mean, %g)", [""]),
    "divides": ("%s0 = Load(%scale, umonad)\n%to = RealDiv(%s0, %g)", [""]),
    "times what forward computed": (
        "%k = Load(%scale, umonad) @f\n%s0 = Neg(%k) @f\n%to = Mul(%g, %s0)",
        ["", "unscale"],
    ),
    "times a tensor": ("%to = Mul(%g, %x)", [""]),
    "squared": ("%to = Mul(%g, %g)", [""]),
    "used twice": ("%n = Neg(%g)\n%to = Mul(%n, %g)", [""]),
    "asked whether it is finite": (
        "%f = IsFinite(%g)\n%all = ReduceAll(%f, (), false)\n%s0 = Load(%scale, umonad)\n%to = RealDiv(%g, %s0)",
        ["", "unscale"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("body", "wanted"), ONE_STAGE.values(), ids=ONE_STAGE)
def test_what_a_stage_is_told_by(body: str, wanted: list[str]) -> None:
    _, found = path(body)
    assert stages(found) == wanted
    assert names(found.points[0]) == ["g"]
    if len(wanted) > 1:
        assert names(found.points[-1]) == ["to"]
        assert [(u.name, i) for u, i in found.points[-1].takers] == [("up", 3)]
        assert in_order(found.points)
    assert found.is_sum


def test_a_hand_written_step_is_no_unscaling() -> None:
    """`w -= rate * g`: the factor is the learning rate, and the path ends before it."""
    _, found = path("%r0 = Load(%rate, umonad)\n%to = Mul(%g, %r0)", "AssignSub(%w, %to, %u)")
    assert stages(found) == [""]
    assert [u.name for u, _ in found.points[0].takers] == ["to"]


SLOT = "%m0 = Load(%m, umonad) !opt\n%old = Mul(%m0, float32[]<0.9>) !opt\n"
KEPT = "%to = Add(%old, %s) !opt"
KEEPS = (
    "Assign(%m, %to, %u) : float32[2] !opt\n%u9 = UpdateState(%u, %up)\n%step = Mul(%to, float32[]<0.1>) !opt\n"
    "%late = AssignSub(%w, %step, %u9) !opt\n%u10 = UpdateState(%u9, %late)"
)
SCOPES = {"!opt": "Default/opt-Own", "!cell": "Default", " @f": "Default/net-Net", " @b": "Gradients/Default/net-Net"}


def of_cells(body: str, update: str = KEEPS) -> GradientPath:
    """`!opt` is computed by the optimizer's cell, `!cell` by the training cell around it."""
    text = STEP.replace("BODY", body).replace("UPDATE", update)
    for mark, scope in SCOPES.items():
        text = text.replace(mark, f' scope("{scope}/op"){mark if "@" in mark else ""}')
    (found,) = gradient_paths(graph(text))
    return found


NUMBERS = (0.1, 0.0625, 1 / 12, 0.03125, 10.0, 16.0, 1000.0)


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("op", ["Mul", "RealDiv"])
def test_the_cell_says_whose_a_factor_is_and_no_number_does(op: str, number: float) -> None:
    """`m = 0.9 m + 0.1 g` is the optimizer's, `optimizer(g / 16)` the training cell's."""
    factor = f"%s = {op}(%g, float32[]<{number}>)"
    assert stages(of_cells(SLOT + f"{factor} !opt\n" + KEPT)) == [""]
    assert stages(of_cells(f"{factor} !cell\n" + SLOT + KEPT)) == ["", "unscale"]


@pytest.mark.parametrize(("network", "stage"), [("Exp", ["", "unscale"]), ("RealDiv", [""])])
def test_an_operator_that_the_training_cell_has_for_its_loss_too_tells_nothing(network: str, stage: list[str]) -> None:
    """The loss that the training cell computes: a division there may have given the optimizer's its scope."""
    operands = "%w0" if network == "Exp" else "%w0, %x"
    loss = f'%own = {network}({operands}) : float32[2] scope("Default/op") primal {{unique_id = "9"}}\n'
    found = of_cells(loss + "%s = RealDiv(%g, float32[]<8.0>) !cell\n" + SLOT + KEPT)
    assert stages(found) == stage
    assert bool(found.assumed) == (stage == [""])


@pytest.mark.parametrize("number", NUMBERS)
def test_an_optimizer_undoes_what_the_loss_is_multiplied_by(number: float) -> None:
    def scaled(by: float) -> GradientPath:
        factor = f"%s = RealDiv(%g, float32[]<{number}>) !opt\n"
        body = f"%big = Mul(%loss, float32[]<{by}>) : float32[] @f\n" + SLOT + factor + KEPT
        seed = f"%g = Mul(%x, float32[2]<{by}, {by}>) : float32[2] @b3"
        text = STEP.replace("%g = Mul(%x, %x) @b", seed).replace("%loss, %end", "%big, %end").replace("@f", "@f3", 2)
        text = text.replace("BODY", body).replace("UPDATE", KEEPS)
        for mark, scope in SCOPES.items():
            text = text.replace(mark, f' scope("{scope}/op"){mark if "@" in mark else ""}')
        (found,) = gradient_paths(graph(text))
        return found

    assert stages(scaled(number)) == ["", "unscale"]
    other = scaled(number + 1)
    assert (stages(other), other.assumed) == ([""], "")


def test_a_decay_in_the_optimizer_stands_in_front_of_a_factor_of_its_own() -> None:
    body = "%d = Mul(%w0, float32[]<0.1>) !opt\n%h = Add(%g, %d) !opt\n%s = Mul(%h, float32[]<0.5>) !opt\n"
    assert stages(of_cells(body + SLOT + KEPT)) == ["", "weight-decay"]


@pytest.mark.parametrize(
    ("body", "end"),
    [
        ("%s = Mul(%g, %x) !cell\n", "s"),  # a mask
        ("%n = Neg(%g) !cell\n%a = Mul(%n, %g) !cell\n%s = Sub(%a, %x) !cell\n", "s"),  # used twice, and noise
        ("%n = Neg(%g) !cell\n%s = Mul(%n, float32[]<0.5>) !cell\n", "s"),
    ],
)
def test_what_else_the_training_cell_does_is_a_treatment(body: str, end: str) -> None:
    found = of_cells(body + SLOT + KEPT)
    assert stages(found)[-1] in ("treatment", "unscale")
    assert names(found.at("clip")) == [end]


@pytest.mark.parametrize(("place", "wanted"), [("!cell", ["", "clip"]), ("!opt", [""])])
def test_a_clip_is_whose_cell_computes_it(place: str, wanted: list[str]) -> None:
    """An optimizer that normalises divides by a norm, bounded or not."""
    norm = SQUARES.replace("\n", f" {place}\n")
    assert stages(of_cells(norm + f"%s = RealDiv(%g, %norm) {place}\n" + SLOT + KEPT)) == wanted


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ("%s = Mul(%g, float32[]<0.5>) !net\n" + SLOT + KEPT, ["", False, True]),
        ("%s = Mul(%g, float32[]<0.5>) !net\n%s2 = Mul(%s, %x) !cell\n" + SLOT + KEPT.replace("%s", "%s2"),
         ["unscale", True, False]),
        ("%n = ReduceSum(%x, (), false) : float32[] !net\n%s = RealDiv(%g, %n) !net\n" + SLOT + KEPT,
         ["unscale", True, False]),
        (SLOT + "%k = Mul(%m0, %x) !opt\n%q = ReduceSum(%k, (), false) : float32[] !net\n"
         "%s = Mul(%g, %q) !net\n" + KEPT, ["", False, False]),
    ],
)  # fmt: skip
def test_what_has_the_scope_of_the_network_is_told_by_what_is_around_it(body: str, wanted: list[object]) -> None:
    """MindSpore gives what a Python operator stands for the scope of its first use."""
    stage, outside, assumed = wanted
    found = of_cells(body.replace("!net", 'scope("Default/net-Net/op")'))
    assert (stage in stages(found), len(found.points) > 1, "which cell" in found.assumed) == (True, outside, assumed)


def test_what_no_cell_tells_is_assumed_aloud_and_may_be_said() -> None:
    """A training cell that updates by itself, and one that calls a primitive that updates."""
    body = SLOT + "%s = RealDiv(%g, float32[]<8.0>) !opt\n" + KEPT
    bare = [text.replace("!opt", "") for text in (body, KEEPS)]
    _, found = path(*bare)
    assert stages(found) == [""]
    assert "taken for a part of the update: the file does not tell which cell computes it" in found.assumed
    whole = graph(STEP.replace("BODY", bare[0]).replace("UPDATE", bare[1]))
    for said, wanted in ((8.0, ["", "unscale"]), (16.0, [""]), (1.0, [""])):
        (told,) = gradient_paths(whole, unscale=said)
        assert (stages(told), told.assumed) == (wanted, "")
    _, found = path("%to = RealDiv(%g, float32[]<8.0>)")
    assert "taken for a stage of the training cell" in found.assumed


def test_a_scaled_gradient_may_meet_the_weight() -> None:
    """That is a decay, and no slot: the training cell scaled the gradient."""
    _, found = path("%s = Mul(%g, float32[]<0.1>)\n%d = Mul(%w0, float32[]<0.1>)\n%to = Add(%s, %d)")
    assert stages(found) == ["", "unscale", "weight-decay"]


CLIPPED = (
    "%s0 = Load(%scale, umonad)\n%un = RealDiv(%g, %s0)\n" + SQUARES.replace("%g", "%un") + "%to = RealDiv(%un, %norm)"
)


def test_unscaling_stands_before_the_norm() -> None:
    g, found = path(CLIPPED)
    assert stages(found) == ["", "unscale", "clip"]
    unscaled = found.points[1]
    assert [u.name for u, _ in unscaled.measures] == ["sq"]
    assert [u.name for u, _ in unscaled.takers] == ["to"]
    assert found.at("unscale") is unscaled
    assert found.at("finite-check") is unscaled  # the last before that stage
    assert found.at("update") is found.points[2]
    assert found.at("accumulate") is found.points[0]
    assert found.has("clip")
    assert not found.has("weight-decay")
    assert unscaled.graph is g


def test_a_factor_between_the_measured_gradient_and_the_clip_is_part_of_the_clip() -> None:
    """The norm is that of the raw gradient: a scaling behind the measure belongs to the division by the norm."""
    _, found = path("%s0 = Load(%scale, umonad)\n" + SQUARES + "%h = Mul(%g, %s0)\n%to = RealDiv(%h, %norm)")
    assert stages(found) == ["", "clip", "clip"]
    assert names(found.points[1]) == ["h"]


def test_a_factor_that_passes_marked_is_not_claimed() -> None:
    body = (
        "%s0 = Load(%scale, umonad)\n"
        + SQUARES
        + '%h = Mul(%g, %s0) marks {stage = "unscale"}\n%to = RealDiv(%h, %norm)'
    )
    _, found = path(body)
    assert stages(found) == ["", "unscale", "clip"]


def test_nothing_is_claimed_where_nothing_measures() -> None:
    _, found = path(
        "%s0 = Load(%scale, umonad)\n%h = Mul(%g, %s0)\n"
        "%to = ClipByValue(%h, float32[]<-1.0>, float32[]<1.0>) : float32[2]"
    )
    assert stages(found) == ["", "unscale", "clip"]


def test_only_what_lies_behind_the_measure_is_claimed() -> None:
    """all-reduce, then a measured point, a factor, the clip: the all-reduce before the measure stays what it is."""
    _, found = path(
        "%s0 = Load(%scale, umonad)\n%a = AllReduce(%g)\n" + SQUARES.replace("%g", "%a")
        + "%h = Mul(%a, %s0)\n%to = RealDiv(%h, %norm)"
    )  # fmt: skip
    assert stages(found) == ["", "all-reduce", "clip", "clip"]


def test_summands_that_meet() -> None:
    """A weight used twice: two gradients, unscaled side by side, added up for the update."""
    _, found = path(
        "%g2 = Neg(%g) @b\n%s0 = Load(%scale, umonad)\n%a = RealDiv(%g, %s0)\n%b = RealDiv(%g2, %s0)\n"
        "%p = MakeTuple(%a, %b)\n%to = AddN(%p)"
    )
    assert stages(found) == ["", "unscale", ""]
    assert names(found.points[0]) == ["g", "g2"]
    assert names(found.points[1]) == ["a", "b"]
    assert names(found.points[2]) == ["to"]
    assert found.is_sum
    total = summed(found.points[1])
    assert total.op.name == "Add"
    assert [o.name for o in total.operands] == ["a", "b"]  # type: ignore[attr-defined]


def test_summands_that_go_different_ways_are_no_point() -> None:
    _, found = path(
        "%g2 = Neg(%g) @b\n%s0 = Load(%scale, umonad)\n%a = RealDiv(%g, %s0)\n%b = AllReduce(%g2)\n"
        "%p = MakeTuple(%a, %b)\n%to = AddN(%p)"
    )
    assert stages(found) == [""]
    assert not found.is_sum


def test_a_gradient_of_two_uses_ends_where_the_update_begins() -> None:
    """Adam by hand: moments take the gradient in two ways."""
    _, found = path(
        "%s0 = Load(%scale, umonad)\n%h = RealDiv(%g, %s0)\n%sq = Square(%h)\n%ms = Mul(%sq, %s0)\n%to = Mul(%h, %ms)"
    )
    assert stages(found) == ["", "unscale"]
    assert [u.name for u, _ in found.points[1].takers] == ["sq", "to"]


def test_into_a_function_that_one_call_gives_the_gradient() -> None:
    g = graph("""
state %w: float32[2]
state %m: float32[2]
state %rate: float32[]
graph @step(%x: float32[2], %no: bool[]) {
  %w0 = Load(%w, umonad) @f
  %y = Mul(%w0, %x) @f
  %loss = ReduceSum(%y, (), false) @f
  %g = Mul(%x, %x) @b
  %u = UpdateState(umonad, %y)
  %p = Partial(@update, %w, %m, %rate, %g, %u)
  %q = Partial(@nothing)
  %s = Switch(%no, %q, %p) : union<@update, @nothing>
  %c = call(%s) : float32[]
  %v = UpdateState(%u, %c)
  %r = Depend(%loss, %v)
  return %r
  func @update(%weight: float32[2]@w, %slot: float32[2]@m, %lr: float32[]@rate, %gr: float32[2], %t: umonad) {
    %l = Load(%weight, %t)
    %d = Mul(%l, float32[]<0.1>)
    %pair = MakeTuple(%gr, %d)
    %sum = AddN(%pair)
    %t1 = UpdateState(%t, %d)
    %up = ApplyMomentum(%weight, %slot, %lr, %sum, %lr, %t1) : float32[2]
    %t2 = UpdateState(%t1, %up)
    %z = Depend(float32[]<0.0>, %t2)
    return %z
  }
  func @nothing() {
    return float32[]<0.0>
  }
}""")
    (found,) = gradient_paths(g)
    assert stages(found) == ["", "", "weight-decay"]
    assert names(found.points[1]) == ["gr"]
    update = next(f for f in g.all_graphs() if f.name == "update")
    assert found.points[1].graph is update
    assert found.at("update").values[0] is node(g, "sum")
    assert found.at("update", g) is found.points[0]
    assert found.at("update", update) is found.points[2]


def test_put_replaces_the_value_for_all_who_take_it_on() -> None:
    g, found = path(CLIPPED)
    before = [value.name for value in node(g, "up").operands]
    changed = put(found, "unscale", lambda of, value: of.create("Neg", [value]))
    assert changed is g
    taken = node(g, "to").operand(0)
    assert taken.op.name == "Neg"
    assert taken.marks["stage"] == "unscale"  # type: ignore[attr-defined]
    assert taken.operand(0) is node(g, "un")  # type: ignore[attr-defined]
    assert node(g, "sq").operand(0) is taken  # what measures it measures what is taken on
    assert [value.name for value in node(g, "up").operands] == before
    (again,) = gradient_paths(g)
    assert stages(again) == ["", "unscale", "unscale", "clip"]


def test_put_on_a_gradient_that_nothing_uses() -> None:
    _, found = path("%to = AllReduce(%g)")
    found.points[-1].takers.clear()
    with pytest.raises(AnatomyError, match="the gradient of weight 'w' is used by nothing"):
        put(found, "update", lambda of, value: of.create("Neg", [value]))


def test_a_marked_gradient_starts_where_its_mark_is() -> None:
    """After a cut there is no backward part: the marks tell, and number the summands."""
    g = graph(
        STEP.replace(" @b", ' marks {gradient = "w", gradient_part = 1}').replace(" @f", "")
        .replace("BODY", '%h = Exp(%x) marks {gradient = "w"}\n%p = MakeTuple(%g, %h)\n%to = AddN(%p)')
        .replace("UPDATE", MOMENTUM)
    )  # fmt: skip
    (found,) = gradient_paths(g)
    assert found.weight == "w"
    assert names(found.points[0]) == ["h", "g"]
    assert stages(found) == ["accumulate", ""]


def test_one_gradient_of_two_weights_goes_to_each_by_its_own_path() -> None:
    g = graph(
        "state %v: float32[2]\nstate %m2: float32[2]\n"
        + STEP.replace(
            "BODY",
            "%v0 = Load(%v, umonad) @f\n%z = Mul(%v0, %y) @f\n%to = AllReduce(%g)\n"
            "%other = ApplyMomentum(%v, %m2, %rate, %g, %rate, umonad) : float32[2]",
        ).replace("UPDATE", MOMENTUM)
    )
    found = {p.weight: p for p in gradient_paths(g)}
    assert set(found) == {"v", "w"}
    assert stages(found["w"]) == ["", "all-reduce"]
    assert stages(found["v"]) == [""]
    assert [u.name for u, _ in found["v"].points[0].takers] == ["other"]
    assert [u.name for u, _ in found["w"].points[0].takers] == ["to"]


CONSTANT = (
    "%v0 = Load(%v, umonad) @f\n%z = Mul(%v0, %x) @f\n%to = AllReduce(%g)\n"
    "%other = ApplyMomentum(%v, %m2, %rate, float32[2]<VALUES>, %rate, umonad) : float32[2]\n"
    "%o = UpdateState(umonad, %other)\n%kept = Depend(%loss, %o)"
)


@pytest.mark.parametrize(("constant", "wanted"), [("1.0, 2.0", {"v", "w"}), ("0.0, 0.0", {"w"})])
def test_a_constant_gradient_has_a_path_unless_it_is_zero(constant: str, wanted: set[str]) -> None:
    text = "state %v: float32[2]\nstate %m2: float32[2]\n" + STEP.replace("BODY", CONSTANT.replace("VALUES", constant))
    assert {p.weight for p in gradient_paths(graph(text.replace("UPDATE", MOMENTUM)))} == wanted


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("mlp", [""]),
        ("mlp_adam_decay", ["", "weight-decay"]),
        ("mlp_half_compute", ["", ""]),
        ("mlp_loss_scale_dynamic", ["", "unscale", ""]),
        ("clip_global_norm", ["", "clip", "clip"]),  # times the limit, then divided by the norm
    ],
)
def test_exported_graphs(name: str, wanted: list[str]) -> None:
    """What the networks of the zoo do themselves; a bias has no weight decay in none of them but where all have."""
    program = material(name)
    for found in gradient_paths(program.graphs["step"]):
        assert [s for s in stages(found) if s] == [s for s in wanted if s], found.weight


@pytest.mark.parametrize(("split", "graphs"), [("apply", ["apply"]), ("fused", ["apply", "step"])])
def test_paths_go_on_after_a_cut(split: str, graphs: list[str]) -> None:
    """fused: a short cycle ends with @apply, any other with @step."""
    pipeline = f"gradient-accumulation{{steps=2,split={split}}},clip-gradients,overflow-check"
    program = compile_program(material("mlp_adam_decay"), pipeline, reproducer_directory=None)
    assert [g.name for g in updating_graphs(program)] == graphs
    for updating in updating_graphs(program):
        paths = gradient_paths(updating)
        assert {p.weight for p in paths} == {n for n, v in program.state.items() if v.trainable}
        for found in paths:
            assert [s for s in stages(found) if s] == ["accumulate", "clip", "weight-decay"]
            assert in_order(found.points)


def test_the_graph_of_a_program_that_is_not_split_updates() -> None:
    program = material("mlp")
    assert updating_graphs(program) == [program.graphs["step"]]


def test_the_worked_graph() -> None:
    g, _, comments = worked(gradient_path)
    (found,) = gradient_paths(g)
    told = {value.name: point.stage for point in found.points for value in point.values}
    measured = {user.name for point in found.points for user, _ in point.measures}
    said = {n: "" if c in ("the raw gradient", "passes it on") else c for n, c in comments.items()}
    assert told == {n: stage for n, stage in said.items() if stage != "measures it"}
    assert measured == {n for n, c in comments.items() if c == "measures it"}
    assert (found.weight, found.is_sum, in_order(found.points)) == ("w", True, True)


def test_what_waits_for_a_measure_takes_nothing_on() -> None:
    """A token behind the square of a gradient makes the square no taker of it."""
    _, found = path(CLIPPED.replace("%sum =", "%held = UpdateState(umonad, %sq)\n%sum ="))
    assert stages(found) == ["", "unscale", "clip"]
    assert [u.name for u, _ in found.points[1].measures] == ["sq"]


MEASURING = """
state %w: float32[2]
state %m: float32[2]
state %rate: float32[]
graph @step(%x: float32[2]) {
  %w0 = Load(%w, umonad) @f
  %y = Mul(%w0, %x) @f
  %loss = ReduceSum(%y, (), false) @f
  %g = Mul(%x, %x) @b
  %u = UpdateState(umonad, %y)
  %norm = CALLS
  %to = RealDiv(%g, %norm)
  %up = ApplyMomentum(%w, %m, %rate, %to, %rate, %u) : float32[2]
  %end = UpdateState(%u, %up)
  %r = Depend(%loss, %end)
  return %r
  func @measure(%v: float32[2], %t: umonad) {
    %sq = Square(%v)
    %held = UpdateState(%t, %v)
    %sum = ReduceSum(%sq, (), false)
    %n = Depend(%sum, %held)
    return %n
  }
}"""


def test_a_function_that_only_measures_takes_nothing_on() -> None:
    g = graph(MEASURING.replace("CALLS", "call(@measure, %g, %u) : float32[]"))
    (found,) = gradient_paths(g)
    assert [u.name for u, _ in found.points[0].measures] == ["norm"]
    assert [u.name for u, _ in found.points[0].takers] == ["to"]
    bound = MEASURING.replace("%norm = CALLS", "%p = Partial(@measure, %g, %u)\n  %norm = call(%p) : float32[]")
    (found,) = gradient_paths(graph(bound))
    assert [u.name for u, _ in found.points[0].measures] == ["p"]
