"""Frozen weights keep every bit and the others train as without freezing, by numpy; and which cycle runs what."""

from __future__ import annotations

import re

import numpy as np
import pytest
from boost_compile.ir.core.errors import Error
from boost_compile.ir.core.program import Program
from boost_compile.ir.core.variants import Choice
from boost_compile.passes import compile_program

from tests.execution import ORDERS, train
from tests.graphs import program
from tests.material import batches, material, values


def compiled(source: Program, options: str, before: str = "") -> Program:
    return compile_program(source, f"{before}gradient-freeze{{{options}}}", reproducer_directory=None)


def weights(of: Program) -> list[str]:
    return [n for n, v in of.state.items() if v.role == "weight"]


FROZEN = {
    "mlp": "hidden.",
    "mlp_adam_decay": "hidden.",
    "branch": "hidden.",
    "gated_update": "network.hidden.",
    "loop": "hidden.",
    "hand_momentum": "network.hidden.",
    "residual": "stem.|bn.|block.conv1.|block.bn1.|block.conv2.|block.bn2.",
}
"""What the second cycle does not train: the names begin so. The rest stands behind it in forward."""


STEPS = "gradient-accumulation{steps=2,carry=last},"


@pytest.mark.parametrize(
    ("name", "before", "n"),
    [
        *((name, "", 1) for name in FROZEN),
        *((name, STEPS, 2) for name in FROZEN if name != "residual"),
        *((name, "gradient-accumulation{steps=2,split=fused},", 2) for name in ("mlp", "loop", "residual")),
        *((name, f"{STEPS}overflow-check,", 2) for name in ("mlp_adam_decay", "branch")),
    ],
)
def test_a_frozen_cycle(name: str, before: str, n: int) -> None:
    """The first cycle trains everything. The second trains what does not match, as if all were trained; what matches
    stays, and its gradients are not computed."""
    source = material(name)
    frozen = {w for w in weights(source) if w.startswith(tuple(FROZEN[name].split("|")))}
    trained = "|".join(w for w in weights(source) if w not in frozen)
    plain = compile_program(source, before.rstrip(","), reproducer_directory=None)
    found = compiled(source, f'train=["*","{trained}"],strategy=[0,1]', before)
    state, given = values(source), batches(source, 2 * n)
    first, whole = train(plain, state, given[:n])[1], train(plain, state, given)[1]
    still = {s for s, v in plain.state.items() if s in frozen or v.weight in frozen}
    for order in ORDERS[:3]:
        results, after = train(found, state, given, order)
        assert after["freeze.cycle"] == 2
        assert {graph.endswith(".1") for graph, _ in results[len(results) // 2 :]} == {True}
        for s in plain.state:
            wanted = first[s] if s in still else whole[s]
            np.testing.assert_array_equal(after[s], wanted, err_msg=s)
    variant = sum(len(graph) for name, graph in found.graphs.items() if name.endswith(".1"))
    base = sum(len(graph) for graph in found.graphs.values()) - variant
    report = found.reports[-1]
    said = str(report.statistics["variant 1"])
    shown = re.fullmatch(r"(\d+) weights? frozen, (-?\d+) nodes? and (-?\d+) % of the estimated FLOPs less", said)
    assert shown
    assert [int(s) for s in shown.groups()[:2]] == [len(frozen), base - variant]
    assert base > variant
    assert 0 < int(shown[3]) < 100
    assert (report.matched, report.changed) == (len(weights(source)), len(frozen))
    assert report.summary == (
        f"2 variants; frozen of {report.matched} weights (and estimated FLOPs saved): {len(frozen)} ({shown[3]} %)"
    )


def test_a_norm_is_that_of_the_trained_gradients() -> None:
    source = material("mlp")
    state, (batch,) = values(source), batches(source, 1)
    state |= {n: np.zeros_like(state[n]) for n in source.state if n.startswith("moments.")}
    plain = train(source, state, [batch])[1]
    gradients = {n: plain[f"moments.{n}"] for n in ("output.weight", "output.bias")}
    norm = np.sqrt(sum(np.square(g).sum() for g in gradients.values()))
    after = train(compiled(source, "groups=2,strategy=[1]", f"clip-gradients{{limit={norm / 2!r}}},"), state, [batch])[
        1
    ]
    for n, gradient in gradients.items():
        np.testing.assert_allclose(after[f"moments.{n}"], gradient / 2, rtol=1e-5)


def test_a_gradient_of_two_weights_stays_while_one_is_trained() -> None:
    text = """
state %v: float32[2] role=weight
state %w: float32[2] role=weight
state %rate: float32[]<1.0> role=hyperparameter
graph @step(%x: float32[2]) -> (loss) {
  %v0 = Load(%v, umonad) @f
  %w0 = Load(%w, umonad) @f
  %a = Add(%v0, %x) @f
  %loss = Add(%a, %w0) @f
  %g = OnesLike(%loss) @b
  %u = UpdateState(umonad, %loss)
  %up = ApplyGradientDescent(%v, %rate, %g, %u) : float32[2]
  %also = ApplyGradientDescent(%w, %rate, %g, %u) : float32[2]
  %end = UpdateState(%u, %up, %also)
  %r = Depend(%loss, %end)
  return %r
}"""
    for frozen, trained in (("v", "w"), ("w", "v")):
        found = compiled(program(text), f'train=["{trained}","*"],strategy=[0]')
        after = train(found, {}, [[np.ones(2, np.float32)]])[1]
        np.testing.assert_array_equal(after[frozen], [0, 0])
        np.testing.assert_array_equal(after[trained], [-1, -1])


def test_the_backward_part_of_frozen_weights_is_gone() -> None:
    found = compiled(material("mlp"), 'train=["*","output*","output.bias"],strategy=[0,1,2]')
    products = {name: sum(node.op.name == "MatMul" for node in graph) for name, graph in found.graphs.items()}
    assert products == {"step": 5, "step.1": 3, "step.2": 2}
    assert found.reports[-1].summary.startswith("3 variants; frozen of 4 weights (and estimated FLOPs saved): 2 (")


def test_layers_are_frozen_from_the_input_on() -> None:
    """A convolution and its BatchNorm stay together."""
    source = material("residual")
    found = compiled(source, "groups=3")
    trained = []
    state, given = values(source), batches(source, 1)
    for k in range(3):
        listed = compiled(source, f"groups=3,strategy=[{k}]")
        after = train(listed, state, given)[1]
        trained.append({w.rpartition(".")[0] for w in weights(source) if not np.array_equal(after[w], state[w])})
    everything = {w.rpartition(".")[0] for w in weights(source)}
    assert trained[0] == everything
    assert everything - trained[1] == {"stem", "bn", "block.conv1", "block.bn1"}
    assert everything - trained[1] < everything - trained[2]
    assert "head" in trained[2]
    assert found.reports[-1].misses == []


SEQUENCE = "freeze.cycle"
CHOICES = {
    "groups=2": Choice(2, "interval", 0.5, 2020, 0, SEQUENCE),
    "groups=2,type=continuous,probability=0.25,total_steps=1,seed=7": Choice(2, "continuous", 0.25, 1, 7, SEQUENCE),
    "groups=2,after=repeat": Choice(2, "interval", 0.5, 2020, 0, SEQUENCE, repeat=True),
    "groups=2,type=round-robin": Choice(2, "listed", 0.0, 2, 0, SEQUENCE, (0, 1), repeat=True),
    "groups=2,strategy=[1,0,1]": Choice(2, "listed", 0.0, 3, 0, SEQUENCE, (1, 0, 1)),
    "groups=2,strategy=[1,0,1],after=repeat": Choice(2, "listed", 0.0, 3, 0, SEQUENCE, (1, 0, 1), repeat=True),
    # The group that trains everything is variant 0, and equal groups are one variant.
    'train=["output*","*","output.*"],type=round-robin': Choice(
        2, "listed", 0.0, 3, 0, SEQUENCE, (1, 0, 1), repeat=True
    ),
    'train=["output* | *.bias","*"],strategy=[0,1]': Choice(2, "listed", 0.0, 2, 0, SEQUENCE, (1, 0)),
}


@pytest.mark.parametrize("options", CHOICES)
def test_which_cycle_runs_what(options: str) -> None:
    assert compiled(material("mlp"), options).schedule.choice == CHOICES[options]


def test_fewer_layers_than_groups_are_reported() -> None:
    (report,) = compiled(material("mlp"), "").reports
    assert [(m.site, m.reason) for m in report.misses] == [
        ("groups", "the network has 2 layers with trained weights, so 2 groups")
    ]


REFUSED = {
    'train=["*"]': "give train two globs or more",
    "groups=3,strategy=[3]": "strategy names group 3; of 3 groups the last is 2",
    "groups=3,strategy=[0,2]": "strategy names group 2, but the network has only 2 groups",
    'train=["*","*"]': "every group of *, * trains all 4 weights",
    'train=["*","ouput*"]': "group 'ouput*' trains nothing: no weight has such a name",
}


@pytest.mark.parametrize("options", REFUSED)
def test_what_is_refused(options: str) -> None:
    with pytest.raises(Error, match=re.escape(REFUSED[options])):
        compiled(material("mlp"), options)


def test_freezing_twice_or_one_layer_is_refused() -> None:
    once = compiled(material("mlp"), "groups=2")
    with pytest.raises(Error, match="has variants already"):
        compiled(once, "groups=2")
    one = program("""
state %w: float32[2] role=weight
state %rate: float32[] role=hyperparameter
graph @step(%x: float32[2]) -> (loss) {
  %w0 = Load(%w, umonad) @f
  %loss = Mul(%w0, %x) @f
  %g = Mul(%x, %x) @b
  %u = UpdateState(umonad, %loss)
  %up = ApplyGradientDescent(%w, %rate, %g, %u) : float32[2]
  %end = UpdateState(%u, %up)
  %r = Depend(%loss, %end)
  return %r
}""")
    with pytest.raises(Error, match="the network has 1 layer with trained weights: there is no prefix to freeze"):
        compiled(one, "")
