"""What passes promise of a training, held by running exported graphs before and after with numpy (tests/execution.py).

Each program runs in several orders that its tokens allow, with memory shared as far as they allow: the results must not
depend on it. The expectations are computed from runs of the graph as exported, one micro-batch each.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache

import numpy as np
import pytest
from boost_compile.ir.core.program import Program
from boost_compile.passes import compile_program

from tests.execution import ORDERS, Arrays, close, initial, run_graph, train
from tests.material import batches, material, values
from tests.passes.graphs import source as parsed

SAME = (
    *("mlp", "mlp_adam_decay", "mlp_half_compute", "branch", "loop", "mlp_loss_scale_dynamic", "clip_global_norm"),
    *("gated_update", "hand_momentum", "meters"),
)
AFFINE = ("mlp", "branch", "loop", "hand_momentum", "meters", "mlp_half_compute")
"""Momentum: where a step from given state leads is an affine function of the gradient, so from the mean gradient it
leads to the mean of where it leads from each."""
Inputs = list[list[np.ndarray]]


def compiled(name: str, pipeline: str) -> Program:
    return compile_program(material(name), pipeline, reproducer_directory=None)


def after(program: Program, state: Arrays, given: Inputs) -> Arrays:
    """The state after training on `given`; the same in all orders."""
    runs = [train(program, state, given, order)[1] for order in ORDERS]
    for other in runs[1:]:
        equal(other, runs[0], runs[0])
    return runs[0]


@cache
def as_exported(name: str, count: int) -> Arrays:
    """The state after training the exported graph on its first micro-batches."""
    source = material(name)
    return after(source, values(source), batches(source, count))


def equal(found: Arrays, wanted: Arrays, names: Iterable[str]) -> None:
    for name in names:
        np.testing.assert_array_equal(found[name], wanted[name], err_msg=name)


def role(program: Program, *roles: str) -> list[str]:
    return [name for name, variable in program.state.items() if variable.role in roles]


@pytest.mark.parametrize("name", SAME)
@pytest.mark.parametrize(
    "pipeline",
    [
        "", "dead-code-elimination", "common-subexpression-elimination", "effect-chain-minimization",
        "legalize{target=cpu}", "data-parallel{fusion=0}", "data-parallel", "gradient-accumulation{steps=1}",
        "gradient-accumulation{steps=1,split=fused}",
    ],
)  # fmt: skip
def test_one_rank_one_micro_batch_trains_to_the_same_bits(name: str, pipeline: str) -> None:
    source = material(name)
    found = after(compiled(name, pipeline), values(source), batches(source, 2))
    equal(found, as_exported(name, 2), source.state)


@pytest.mark.parametrize("name", AFFINE)
@pytest.mark.parametrize("options", ["", ",split=fused"])
def test_a_cycle_updates_once_from_the_mean_gradient(name: str, options: str) -> None:
    source = material(name)
    state, given = values(source), batches(source, 3)
    each = [after(source, state, [batch]) for batch in given]
    found = after(compiled(name, f"gradient-accumulation{{steps=3{options}}}"), state, given)
    trained = role(source, "weight", "slot")
    close(
        found,
        {n: np.mean([e[n] for e in each], axis=0, dtype=np.float64).astype(state[n].dtype) for n in trained},
        trained,
    )
    equal(found, each[0], role(source, "hyperparameter"))  # one step is counted, not three


@pytest.mark.parametrize("name", AFFINE)
def test_a_sum_is_a_mean_times_the_number(name: str) -> None:
    """Of four equal micro-batches the sum is four times a gradient: as far as four steps go without momentum."""
    source = material(name)
    state, given = values(source), batches(source, 1)
    state |= {n: np.zeros_like(state[n]) for n in role(source, "slot")}
    one = after(source, state, given)
    found = after(compiled(name, "gradient-accumulation{steps=4,reduction=sum}"), state, given * 4)
    weights = role(source, "weight")
    close(found, {n: state[n] + 4 * (one[n] - state[n]) for n in weights}, weights)


@pytest.mark.parametrize("name", SAME)
@pytest.mark.parametrize("options", ["", ",split=fused"])
def test_equal_micro_batches_train_like_one(name: str, options: str) -> None:
    """The mean of four equal gradients is that gradient to the bit, through any optimizer."""
    source = material(name)
    state, given = values(source), batches(source, 1)
    found = after(compiled(name, f"gradient-accumulation{{steps=4,carry=last{options}}}"), state, given * 4)
    wanted = after(source, state, given)
    equal(found, wanted, role(source, "weight", "slot", "hyperparameter"))


@pytest.mark.parametrize("name", ["mlp", "mlp_adam_decay", "branch", "loop", "hand_momentum", "mlp_half_compute"])
@pytest.mark.parametrize(
    "pipeline",
    [
        "loss-scale{mode=static,init=8}", "group-loss-scale{groups=2,init=[4,16]}", "overflow-check",
        "clip-gradients{limit=1e6}", "clip-gradients{by=tensor-norm,limit=1e6}", "clip-gradients{by=value,limit=1e6}",
        "loss-scale{init=8},overflow-check", "overflow-check,clip-gradients{limit=1e6},data-parallel",
        "gradient-accumulation{steps=1},overflow-check", "gradient-accumulation{steps=1,split=fused},overflow-check",
        "gradient-accumulation{steps=1},overflow-check{policy=skip-micro}",
    ],
)  # fmt: skip
def test_what_stands_around_the_optimizer_leaves_an_ordinary_step_alone(name: str, pipeline: str) -> None:
    """Scales are powers of two, limits are far away, everything is finite: the bits are those of the exported graph."""
    source = material(name)
    found = after(compiled(name, pipeline), values(source), batches(source, 2))
    equal(found, as_exported(name, 2), source.state)


@pytest.mark.parametrize("split", ["apply", "fused"])
def test_a_scale_leaves_the_sums_of_a_cycle_alone(split: str) -> None:
    """Nothing divides them by a count, to which the scale could be joined."""
    source, summing = material("mlp"), f"gradient-accumulation{{steps=2,split={split},reduction=sum}}"
    found, wanted = (
        after(compiled("mlp", summing + scale), values(source), batches(source, 4))
        for scale in (",loss-scale{mode=static,init=8}", "")
    )
    equal(found, wanted, role(source, "weight", "slot"))


NOT_FINITE = (np.inf, -np.inf, np.nan)


@pytest.mark.parametrize("name", ["mlp", "mlp_adam_decay", "branch", "loop", "hand_momentum", "mlp_half_compute"])
@pytest.mark.parametrize("bad", NOT_FINITE)
@pytest.mark.parametrize("options", ["", "{max_skipped=0}"])
def test_a_step_with_a_gradient_that_is_not_finite_changes_nothing(name: str, bad: float, options: str) -> None:
    source = material(name)
    state, given = values(source), batches(source, 2)
    given[0][0] = np.full_like(given[0][0], bad)
    program = compiled(name, f"overflow-check{options}")
    kept = role(source, "weight", "slot", "hyperparameter")
    equal(after(program, state, given[:1]), state, kept)
    equal(after(program, state, given), after(source, state, given[1:]), kept)


@pytest.mark.parametrize("options", ["", ",split=fused"])
@pytest.mark.parametrize("name", ["mlp", "loop", "hand_momentum"])
@pytest.mark.parametrize("place", [0, 1])
def test_one_micro_batch_that_is_not_finite(name: str, options: str, place: int) -> None:
    """skip-cycle: nothing of the cycle is applied. skip-micro: the update is that of the other micro-batch. The next
    cycle begins with empty accumulators either way."""
    source = material(name)
    state, good = values(source), batches(source, 2)
    bad = [np.full_like(good[0][0], np.nan), *good[0][1:]]
    cycle = [bad, good[0]] if place == 0 else [good[0], bad]
    accumulated = f"gradient-accumulation{{steps=2{options}}}"
    kept = role(source, "weight", "slot", "hyperparameter")
    skipping = compiled(name, f"{accumulated},overflow-check")
    dropping = compiled(name, f"{accumulated},overflow-check{{policy=skip-micro}}")
    equal(after(skipping, state, cycle), state, kept)
    equal(after(dropping, state, cycle), after(source, state, good[:1]), kept)
    plain = compiled(name, accumulated)
    equal(after(skipping, state, [*cycle, *good]), after(plain, state, good), kept)
    then = after(source, state, good[:1])
    equal(after(dropping, state, [*cycle, *good]), after(plain, then, good), kept)


def gradients(source: Program, state: Arrays, batch: list[np.ndarray]) -> dict[str, np.ndarray]:
    """Of each weight, from one step of plain Momentum without momentum: what the weight lost over the learning rate."""
    bare = state | {n: np.zeros_like(state[n]) for n in role(source, "slot")}
    done = train(source, bare, [batch])[1]
    served = {v.weight: n for n, v in source.state.items() if v.role == "slot"}
    return {weight: done[slot].astype(np.float64) for weight, slot in served.items()}


def moved(program: Program, state: Arrays, given: Inputs, source: Program) -> dict[str, np.ndarray]:
    """The gradients that the optimizer got: the slots after one cycle from empty ones."""
    done = after(program, state | {n: np.zeros_like(state[n]) for n in role(source, "slot")}, given)
    return {v.weight: done[n].astype(np.float64) for n, v in source.state.items() if v.role == "slot"}


def similar(found: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> None:
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, rtol=2e-5, atol=1e-7, err_msg=name)


@pytest.mark.parametrize("name", ["mlp", "branch", "loop"])
@pytest.mark.parametrize("before", ["", "gradient-accumulation{steps=2},", "loss-scale{mode=static,init=64},"])
def test_clipping(name: str, before: str) -> None:
    source = material(name)
    state, given = values(source), batches(source, 2 if "accumulation" in before else 1)
    each = [gradients(source, state, batch) for batch in given]
    mean = {n: np.mean([e[n] for e in each], axis=0) for n in each[0]}
    total = float(np.sqrt(sum(np.square(g).sum() for g in mean.values())))
    limit = total / 4

    def clip(by: str, at: float) -> dict[str, np.ndarray]:
        return moved(compiled(name, f"{before}clip-gradients{{by={by},limit={at!r}}}"), state, given, source)

    similar(clip("global-norm", limit), {n: g / 4 for n, g in mean.items()})
    similar(clip("global-norm", total * 2), mean)
    norms = {n: float(np.sqrt(np.square(g).sum())) for n, g in mean.items()}
    limit = sorted(norms.values())[len(norms) // 2] * 0.99
    similar(clip("tensor-norm", limit), {n: g * min(1.0, limit / norms[n]) for n, g in mean.items()})
    limit = float(np.median([np.abs(g).max() for g in mean.values()])) / 2
    similar(clip("value", limit), {n: np.clip(g, -limit, limit) for n, g in mean.items()})


@pytest.mark.parametrize("before", ["", "gradient-accumulation{steps=2},", "loss-scale{mode=static,init=64},"])
def test_centralization(before: str) -> None:
    """The gradients of matrices lose their mean over all axes but the first; those of biases stay."""
    source = material("mlp")
    state, given = values(source), batches(source, 2 if "accumulation" in before else 1)
    each = [gradients(source, state, batch) for batch in given]
    mean = {n: np.mean([e[n] for e in each], axis=0) for n in each[0]}
    program = compiled("mlp", f"{before}tag-gradient-centralization,lower-gradient-centralization")
    wanted = {n: g - g.mean(1, keepdims=True) if g.ndim == 2 else g for n, g in mean.items()}
    similar(moved(program, state, given, source), wanted)


def test_an_own_learning_rate() -> None:
    """Only the weights that match learn twice as fast; the gradients are those of the exported graph."""
    source = material("mlp")
    state, given = values(source), batches(source, 1)
    plain, found = (
        after(p, state, given) for p in (source, compiled("mlp", "parameter-groups{match=[*.bias],lr_factor=2.0}"))
    )
    biases = [n for n in role(source, "weight") if n.endswith(".bias")]
    assert len(biases) == 2
    close(found, {n: state[n] + 2 * (plain[n] - state[n]) for n in biases}, biases)
    equal(found, plain, [n for n in source.state if n not in biases])


@pytest.mark.parametrize("name", ["mlp", "mlp_adam_decay", "loop"])
@pytest.mark.parametrize("accumulated", ["", "gradient-accumulation{steps=2},"])
def test_the_dynamic_loss_scale(name: str, accumulated: str) -> None:
    """It halves with each cycle that overflows and doubles after a window of others; weights are as without it."""
    source = material(name)
    n = 2 if accumulated else 1
    state, good = values(source), batches(source, n)
    bad = [[np.full_like(batch[0], np.nan), *batch[1:]] for batch in good]
    program = compiled(name, f"{accumulated}loss-scale{{init=16,window=2}},overflow-check")
    checked = compiled(name, f"{accumulated}overflow-check") if accumulated else compiled(name, "overflow-check")
    (scale,) = [s for s in program.state if program.state[s].role == "loss-scale" and program.state[s].initial == 16]

    def scale_after(*cycles: Inputs) -> float:
        return float(after(program, state, [batch for cycle in cycles for batch in cycle])[scale])

    assert scale_after(bad) == 8
    assert scale_after(bad, bad) == 4
    assert scale_after(good) == 16
    assert scale_after(good, good) == 32
    assert scale_after(good, good, good) == 32
    assert scale_after(good, good, good, good) == 64
    assert scale_after(good, bad, good) == 8
    assert scale_after(good, bad, good, good) == 16
    kept = role(source, "weight", "slot", "hyperparameter")
    cycles = [*good, *bad, *good, *good]
    equal(after(program, state, cycles), after(checked, state, cycles), kept)


@pytest.mark.parametrize("name", ["mlp", "branch", "loop", "mlp_adam_decay"])
@pytest.mark.parametrize("split", ["apply", "fused"])
def test_passes_of_a_whole_pipeline_agree_with_each_alone(name: str, split: str) -> None:
    """Everything at once, in any order that is asked for, is what the parts promise: with limits far away and powers of
    two, four equal micro-batches train like one."""
    source = material(name)
    state, given = values(source), batches(source, 1)
    pipeline = (
        f"clip-gradients{{limit=1e6}},overflow-check,gradient-accumulation{{steps=4,split={split}}},"
        "loss-scale{init=8},data-parallel,common-subexpression-elimination,effect-chain-minimization"
    )
    found = after(compiled(name, pipeline), state, given * 4)
    equal(found, after(source, state, given), role(source, "weight", "slot", "hyperparameter"))


@pytest.mark.parametrize("cycle", ["steps=2", "steps=2,split=fused},overflow-check{policy=skip-micro"])
@pytest.mark.parametrize("by", ["global-norm", "tensor-norm", "value"])
@pytest.mark.parametrize("name", ["mlp", "loop"])
def test_each_rank_clips_its_own_mean(name: str, by: str, cycle: str) -> None:
    """In a process alone a rank's own mean is the mean, also where its count asks whether gradients are finite."""
    source = material(name)
    state, given = values(source), batches(source, 2)
    one, other = (
        after(
            compiled(name, f"gradient-accumulation{{{cycle}}},clip-gradients{{by={by},limit=0.125{more}}}"),
            state,
            given,
        )
        for more in ("", ",each_rank=true")
    )
    close(other, one, source.state)


def test_the_global_norm_is_that_before_clipping() -> None:
    source = material("mlp")
    state, given = values(source), batches(source, 2)
    each = [gradients(source, state, batch) for batch in given]
    norm = np.sqrt(sum(np.square((each[0][n] + each[1][n]) / 2).sum() for n in each[0]))
    program = compiled("mlp", "gradient-accumulation{steps=2},clip-gradients{limit=0.125,report_norm=true}")
    ((_, result),) = [r for r in train(program, state, given)[0] if r[0] == "apply"]
    assert "gradient_norm" in program.graphs["apply"].outputs
    at = program.graphs["apply"].outputs.index("gradient_norm")
    assert float(result[at] if isinstance(result, tuple) else result) == pytest.approx(norm, rel=1e-5)


@pytest.mark.parametrize("name", ["mlp", "loop"])
@pytest.mark.parametrize("scale", [4.0, 1024.0])
def test_a_loss_scale_does_not_show_in_the_loss(name: str, scale: float) -> None:
    source = material(name)
    state, given = values(source), batches(source, 2)
    plain = train(source, state, given)[0]
    scaled = train(compiled(name, f"loss-scale{{mode=static,init={scale}}}"), state, given)[0]
    assert [float(np.ravel(r)[0]) for _, r in scaled] == [float(r) for _, r in plain]


def test_two_scales_of_groups_leave_the_training_alone() -> None:
    source = material("mlp")
    state, given = values(source), batches(source, 3)
    grouped = compiled("mlp", "group-loss-scale{match=[hidden.*,*],init=[4,64],window=2}")
    equal(after(grouped, state, given), after(source, state, given), source.state)


@pytest.mark.parametrize("groups", ["match=[*.weight],weight_decay=0.25", "match=[hidden.*],weight_decay=0.5"])
def test_an_own_weight_decay(groups: str) -> None:
    """A gradient plus the decay times the weight, before it reaches the optimizer."""
    source = material("mlp_adam_decay")
    program = compiled("mlp_adam_decay", f"parameter-groups{{{groups}}}")
    state, (batch,) = values(source), batches(source, 1)
    empty = state | {n: np.zeros_like(state[n]) for n in role(source, "slot")}
    first = {v.weight: n for n, v in source.state.items() if n.startswith("moment1.")}
    found, plain = after(program, empty, [batch]), after(source, empty, [batch])
    pattern, decay = groups.split("match=[")[1].split("]")[0], float(groups.split("=")[-1])
    for weight, slot in first.items():
        matches = weight.endswith(".weight") if pattern == "*.weight" else weight.startswith("hidden.")
        old = 0.001 * state[weight]  # what the export adds, as its own constant says
        more = (decay * state[weight] - old) if matches else 0.0
        np.testing.assert_allclose(
            found[slot], plain[slot] + np.float32(0.1) * more, rtol=1e-4, atol=1e-7, err_msg=weight
        )


def test_a_variant_for_each_group_of_frozen_layers() -> None:
    """The strategy names the variants: 0 trains everything, 1 leaves the layer nearest to the input as it is."""
    source = material("mlp")
    program = compiled("mlp", "gradient-freeze{groups=2,strategy=[0,1]}")
    state, (batch,) = values(source), batches(source, 1)
    names = list(program.graphs)
    whole = train(source, state, [batch])[1]
    outcomes = []
    for name in names:
        memory = {n: initial(program, n, state) for n in program.state}
        run_graph(program.graphs[name], batch, memory)
        outcomes.append({n for n in role(source, "weight") if not np.array_equal(memory[n], state[n])})
        for n in outcomes[-1]:
            np.testing.assert_array_equal(memory[n], whole[n], err_msg=n)
    assert sorted(map(sorted, outcomes)) == sorted([sorted(role(source, "weight")), ["output.bias", "output.weight"]])


def test_adasum_alone_is_the_plain_update() -> None:
    """Without other ranks AdaSum(old, new) is new; here the primitive is written so that it says."""
    program = compiled("mlp", "adasum")
    assert sum(n.op.name == "AdaSum" for g in program.graphs.values() for b in g.all_graphs() for n in b) == 4


@pytest.mark.parametrize(
    "pipeline", ["", "gradient-accumulation{steps=1},", "gradient-accumulation{steps=1,split=fused},"]
)
@pytest.mark.parametrize("by", ["global-norm", "tensor-norm", "value"])
def test_clipping_of_every_kind_of_gradient(by: str, pipeline: str) -> None:
    """In half precision, in two parts, unscaled by the file, a constant; in front of the file's decays."""
    program = parsed("data_parallel.ir")
    rng = np.random.default_rng(5)
    state = {n: rng.standard_normal(v.shape).astype(v.type.dtype) for n, v in program.state.items()}
    state |= {"rate": np.float32(0.125), "rate16": np.float16(0.125)}
    x, half_x = rng.standard_normal((2, 3)).astype(np.float32), np.array([1.5, 0.5], np.float16)
    row = (state["decayed"] * x).sum(1)
    once = row * state["tied"]
    found = {
        "decayed": 0.5 * x**5,
        "tied": row * row + once * once,
        "half": (half_x * half_x).astype(np.float32),
        "stepped": np.square(once * state["tied"] * (state["half"] * half_x)),
        "linear": np.array([0.5, 0.75]),
    }
    norms = {n: np.sqrt(np.square(g).sum()) for n, g in found.items()}
    total, limit = np.sqrt(sum(norm * norm for norm in norms.values())), 0.625
    factor = {n: limit / max(limit, total if by == "global-norm" else norms[n]) for n in found}
    clipped = {n: np.clip(g, -limit, limit) if by == "value" else g * factor[n] for n, g in found.items()}
    moved = {n: g + 0.01 * state[n] if n in ("decayed", "tied") else g for n, g in clipped.items()}
    for report in ("", ",report_norm=true"):
        clip = compile_program(program, f"{pipeline}clip-gradients{{by={by},limit={limit}{report}}}")
        results, memory = train(clip, state, [[x, half_x]])
        for name in found:
            limit_of = 2e-3 if memory[name].dtype == np.float16 else 2e-6
            wanted = state[name] - 0.125 * moved[name]
            np.testing.assert_allclose(memory[name], wanted, rtol=limit_of, atol=limit_of, err_msg=name)
        outputs = [(n, g.outputs) for n, g in clip.graphs.items() if "gradient_norm" in g.outputs]
        assert bool(outputs) == bool(report)
        for graph, names in outputs:
            (shown,) = [result for name, result in results if name == graph][:1] or [None]
            if shown is not None:
                value = shown[names.index("gradient_norm")] if isinstance(shown, tuple) else shown
                assert float(value) == pytest.approx(total, rel=1e-5)


@pytest.mark.parametrize("by", ["tensor-norm", "value"])
def test_clipping_inside_a_function(by: str) -> None:
    """Which unscales its gradient first; the other one is clipped in the main graph."""
    v, w, x = (np.array(pair, np.float32) for pair in ([1, -2], [3, 0.5], [2, 1]))
    program = compile_program(parsed("IN_FUNCTION"), f"clip-gradients{{by={by},limit=0.75}}")
    memory = after(program, {"v": v, "w": w, "rate": np.float32(0.5)}, [[x]])
    for name, old, gradient in (("v", v, 0.5 * w * x), ("w", w, v * x)):
        short = gradient * min(1, 0.75 / np.sqrt(np.square(gradient).sum()))
        wanted = old - 0.5 * (np.clip(gradient, -0.75, 0.75) if by == "value" else short)
        np.testing.assert_allclose(memory[name], wanted, rtol=1e-6, err_msg=name)


@pytest.mark.parametrize("options", ["", ",split=fused"])
def test_an_update_of_a_cycle_waits_for_no_network(options: str) -> None:
    waiting, plain = (
        compile_program(parsed(name), f"gradient-accumulation{{steps=2{options}}}") for name in ("WAITING", "STEP")
    )
    state, given = values(plain), batches(plain, 2)
    state["rate"] = np.float32(0.5)
    equal(after(waiting, state, given), after(plain, state, given), ["v", "w"])
    assert all(n.op.name != "Mul" for n in waiting.graphs["apply"])


def test_rows_that_overflow_are_seen() -> None:
    """The rows of a sparse gradient are its values; the gradient of %v is finite."""
    program = parsed("SPARSE")
    state = {"v": np.array([np.inf, 1], np.float32), "w": np.ones(2, np.float32), "rate": np.float32(0.5)}
    x = np.array([0.5, 2], np.float32)
    memory = after(compile_program(program, "overflow-check"), state, [[x]])
    equal(memory, state, ["v", "w"])
    state["v"][0] = 1
    equal(after(compile_program(program, "overflow-check"), state, [[x]]), after(program, state, [[x]]), ["v", "w"])


@pytest.mark.parametrize(
    ("name", "groups", "scales"),
    [
        ("mlp", "groups=2", (64, 0.125)), ("branch", "groups=2", (0.125, 8)), ("loop", "groups=3", (8, 64, 0.125)),
        ("mlp_half_compute", "groups=2", (4, 16)), ("mlp", "match=[output.*,*]", (0.125, 64)),
        ("mlp", "match=[none|*.bias,*]", (8, 64)), ("lenet_bn", "groups=4", (64, 0.125, 8, 2)),
        ("lenet_bn", "match=[conv2.*,fc1.*|conv1.*,*]", (64, 0.125, 8)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("split", ["apply", "fused"])
def test_each_gradient_has_the_scale_of_its_group(name: str, groups: str, scales: Sequence[float], split: str) -> None:
    """The sums of a cycle hold the scaled gradients, and the scales are returned by number; losses stay."""
    cycle = f"gradient-accumulation{{steps=2,split={split}}}"
    plain = compiled(name, cycle)
    scaled = compiled(name, f"{cycle},group-loss-scale{{{groups},min=0.125,init={list(scales)}}}".replace(", ", ","))
    state, given = values(material(name)), batches(plain, 2)
    sums, result = [], ()
    for program in (plain, scaled):
        memory = {n: initial(program, n, state) for n in program.state}
        result = run_graph(program.graphs["accumulate"], given[0], memory)
        sums.append(memory)
    assert scaled.graphs["accumulate"].outputs == ("loss", *(f"loss_scale_{k}" for k in range(len(scales))))
    assert [float(value) for value in result[1:]] == list(scales)
    members = [scaled.state[f"loss_scale.group{k}.value"].info["weights"] for k in range(len(scales))]
    assert sorted(weight for weights in members for weight in weights) == sorted(role(plain, "weight"))
    for k, weights in enumerate(members):
        for weight in weights:
            wanted = sums[0][f"accum.{weight}"] * np.float32(scales[k])
            limit = 2e-3 if "half" in name else 1e-6
            np.testing.assert_allclose(sums[1][f"accum.{weight}"], wanted, rtol=limit, atol=1e-9, err_msg=weight)
    trained = role(plain, "weight", "slot", "statistic")
    found, wanted = (train(program, state, given)[1] for program in (scaled, plain))
    close(found, wanted, trained) if "half" in name else equal(found, wanted, trained)


def test_a_scale_between_powers_of_two_is_one_and_steps() -> None:
    """6 is 4 times 2^(585/1000). One scale is that of all groups."""
    program = compiled("mlp", "group-loss-scale{groups=2,init=[6,1.5]}")
    names = [f"loss_scale.group{k}.{number}" for k in (0, 1) for number in ("value", "steps")]
    assert [initial(program, name, {}) for name in names] == [4, 585, 1, 585]
    one = compiled("mlp", "group-loss-scale{groups=2,init=[16]}")
    assert [initial(one, f"loss_scale.group{k}.value", {}) for k in (0, 1)] == [16, 16]


def test_a_dynamic_scale_stays_within_its_bounds() -> None:
    source = material("mlp")
    state, (good,) = values(source), batches(source, 1)
    bad = [np.full_like(good[0], np.nan), good[1]]
    program = compiled("mlp", "loss-scale{init=16,factor=4,window=1,min=8,max=128},overflow-check")
    cycles = ([good], [good, good], [bad], [bad, bad])
    assert [float(after(program, state, given)["loss_scale.value"]) for given in cycles] == [64, 128, 8, 8]


def test_a_loss_that_the_updating_branch_returns() -> None:
    """Each micro-batch has one, and so has a step whose update is skipped."""
    program = parsed("GATED")
    state = {"v": np.ones(2, np.float32), "w": np.full(2, 2, np.float32), "rate": np.float32(0.5)}
    given = [[np.array(x, np.float32)] for x in ([0.5, 1], [2, 3])]
    losses = [6, 20]
    assert [float(result) for _, result in train(program, state, given[:1])[0]] == losses[:1]
    cycle = train(compile_program(program, "gradient-accumulation{steps=2,carry=last}"), state, given)[0]
    assert [float(result) for name, result in cycle if name == "accumulate"] == losses
    checked = compile_program(program, "overflow-check", reproducer_directory=None)
    state["w"][0] = np.inf
    (step,) = train(checked, state, given[:1])[0]
    assert checked.graphs["step"].outputs[0] == "loss"
    assert np.isinf(step[1][0])
