"""How a session's graphs come by averaged gradients, one after the other, and clear sums. That they train as before is
shown by the tests of accumulation, which run them; here is that they hold less."""

from __future__ import annotations

from boost_compile.ir.analysis.cost.memory import graph_memory
from boost_compile.ir.core.program import Program
from boost_compile.ir.rewrite.cpu import clearing, staggering
from boost_compile.ir.rewrite.cpu.as_run import as_run
from boost_compile.ir.text import parse_program
from boost_compile.ir.verify.verifier import verify
from boost_compile.runtime.lowering.context import Context
from boost_compile.runtime.lowering.lower import lower

WEIGHTS = 8
BYTES = 128 * 64 * 4


def update_side(measured: bool = False, weights: int = WEIGHTS) -> Program:
    """Momentum on the mean of accumulators, which are cleared; ``measured``: a norm of all gradients is returned."""
    states = [
        f"state %{kind}{k}: float32[128,64] role={role}\n"
        for kind, role in (("w", "weight"), ("m", "slot"), ("accum.w", "accumulator"))
        for k in range(weights)
    ]
    lines = ["%n = Load(%count, umonad) : float32[]"]
    for k in range(weights):
        lines += [
            f"%l{k} = Load(%accum.w{k}, umonad) : float32[128,64]",
            f"%g{k} = RealDiv(%l{k}, %n) : float32[128,64]",
            f"%z{k} = ZerosLike(%l{k}) : float32[128,64]",
        ]
    waited = ", ".join(f"%l{k}, %g{k}, %z{k}" for k in range(weights))
    types = ", ".join(["float32[128,64]"] * 3 * weights)
    lines += [f"%all = MakeTuple({waited}) : ({types})", "%u0 = UpdateState(umonad, %all) : umonad"]
    token = "u0"
    for k in range(weights):
        lines.append(f"%a{k} = ApplyMomentum(%w{k}, %m{k}, 0.1, %g{k}, 0.9, %{token}) : float32[128,64]@w{k}")
        token = f"ua{k}"
        lines.append(f"%{token} = UpdateState(%{'u0' if k == 0 else f'ua{k - 1}'}, %a{k}) : umonad")
    for k in range(weights):
        lines.append(f"%c{k} = Assign(%accum.w{k}, %z{k}, %{token}) : float32[128,64]@accum.w{k}")
        lines.append(f"%uc{k} = UpdateState(%{token}, %c{k}) : umonad")
        token = f"uc{k}"
    result = "%n"
    if measured:
        lines += [f"%s{k} = L2Loss(%g{k}) : float32[]" for k in range(weights)]
        lines.append(f"%t = MakeTuple({', '.join(f'%s{k}' for k in range(weights))})")
        lines.append("%norm = AddN(%t) : float32[]")
        result = "%norm"
    lines.append(f"%d = Depend({result}, %{token}) : float32[]")
    body = "\n".join(f"  {line}" for line in [*lines, "return %d"])
    text = "state %count: float32[] role=counter\n" + "".join(states) + f"graph @apply() {{\n{body}\n}}\n"
    program = parse_program(text)
    verify(program)
    return program


def test_gradients_are_made_one_after_the_other_and_zeros_not_at_all() -> None:
    program = update_side()
    assert graph_memory(program.graphs["apply"]).peak >= 2 * WEIGHTS * BYTES
    run = as_run(program.graphs["apply"])
    assert graph_memory(run).peak <= 2 * BYTES + 1024
    assert sum(node.op.name == "ZerosLike" for node in run) == 0


def test_zeros_are_no_constants() -> None:
    program = update_side()
    computed = lower(program.graphs["apply"], Context(program, "cpu"), [clearing]).graph
    assert sum(node.op.name == "BroadcastTo" for node in computed) == WEIGHTS
    assert graph_memory(computed).constants < 64


def test_what_is_measured_before_the_updates_is_not_put_off() -> None:
    program = update_side(measured=True)
    graph = program.graphs["apply"]
    assert lower(graph, Context(program, "cpu"), [staggering]).graph is graph


def test_one_gradient_waits_for_no_other() -> None:
    program = update_side(weights=1)
    assert lower(program.graphs["apply"], Context(program, "cpu"), [staggering]).steps == ()


def in_a_row(first: str, second: str) -> str:
    """Two weights; the gradients are summed over the ranks in this order, the weight w is updated before v."""
    return f"""
state %w: float32[4] role=weight
state %v: float32[4] role=weight
state %accum.w: float32[4] role=accumulator
state %accum.v: float32[4] role=accumulator
graph @apply() {{
  %l.{first} = Load(%accum.{first}, umonad) : float32[4]
  %g.{first} = AllReduce(%l.{first}) {{group = "mccl_world_group", op = "sum"}} : float32[4]
  %l.{second} = Load(%accum.{second}, umonad) : float32[4]
  %turn = Depend(%l.{second}, %g.{first}) : float32[4]
  %g.{second} = AllReduce(%turn) {{group = "mccl_world_group", op = "sum"}} : float32[4]
  %a = ApplyGradientDescent(%w, 0.1, %g.w, umonad) : float32[4]@w
  %ua = UpdateState(umonad, %a) : umonad
  %b = ApplyGradientDescent(%v, 0.1, %g.v, %ua) : float32[4]@v
  %ub = UpdateState(%ua, %b) : umonad
  %d = Depend(true, %ub) : bool
  return %d
}}
"""


def test_a_sum_over_ranks_does_not_wait_for_an_update_that_needs_a_later_one() -> None:
    for first, second, put_off in (("w", "v", "1 gradient put off"), ("v", "w", "")):
        graph = parse_program(in_a_row(first, second)).graphs["apply"]
        assert staggering.run(graph, Context(parse_program(in_a_row(first, second)), "cpu")).startswith(put_off)
        graph.sort()
        assert sum(node.op.name == "Depend" for node in graph) == (3 if put_off else 2)
