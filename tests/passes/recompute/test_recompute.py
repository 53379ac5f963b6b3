"""recompute: the same bits as without it, in less memory; what is refused, and what is said."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
from boost_compile.ir.analysis.cost.pool import reach
from boost_compile.ir.analysis.cost.running_order import running_order
from boost_compile.ir.core.errors import NotApplicable, OptionError
from boost_compile.ir.core.graph import State
from boost_compile.ir.core.predicates import rests
from boost_compile.ir.core.program import Program
from boost_compile.ir.text import parse_program
from boost_compile.passes import compile_program
from boost_compile.passes.recompute.candidates import DUPLICATED
from boost_compile.tools.compile import command as compile_
from boost_compile.tools.inspect import command as inspect_

from tests.execution import ORDERS, Arrays, train
from tests.graphs import program
from tests.material import batches, material, values
from tests.passes.recompute.chain import WIDTH, chain
from tests.tools.support import shell

NETWORKS = ("mlp", "lenet_bn", "residual", "mlp_loss_scale_dynamic", "clip_global_norm")
OPTIONS = ("", "{policy=pointwise}", "{policy=all}")


def compiled(program: Program, pipeline: str) -> Program:
    return compile_program(program, pipeline, reproducer_directory=None)


@cache
def sixteen_again() -> Program:
    """A chain of 16 layers, recomputed. Nobody changes it."""
    return compiled(chain(16), "recompute")


def copies(program: Program) -> int:
    return sum(DUPLICATED in node.marks for graph in program.graphs.values() for node in graph)


def same(found: Program, wanted: Program) -> None:
    """Both train to the same bits, in all orders that their tokens allow."""
    state, given = values(wanted), batches(wanted, 4)
    expected: Arrays = train(wanted, state, given)[1]
    for order in ORDERS:
        after = train(found, state, given, order)[1]
        assert {n for n in wanted.state if after[n].tobytes() != expected[n].tobytes()} == set()


def memory(program: Program, graph: str = "step") -> int:
    """Bytes of the pool, in the order in which MindSpore runs the graph."""
    found = program.graphs[graph].clone()[0]
    found.reorder(running_order(found))
    return reach(found)


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize(
    "before", ["", "gradient-accumulation{steps=2},", "gradient-accumulation{steps=2,split=fused},"]
)
def test_the_same_bits(name: str, before: str) -> None:
    source = material(name)
    same(compiled(source, f"{before}recompute?"), compiled(source, before.rstrip(",")) if before else source)


@pytest.mark.parametrize("options", OPTIONS)
def test_a_chain_needs_less_memory_for_the_same_bits(options: str) -> None:
    source = chain(16)
    found = compiled(source, f"recompute{options}")
    assert copies(found)
    assert memory(found) < memory(source)
    same(found, source)


def test_blocks_need_about_the_root_of_the_memory() -> None:
    """64 layers keep 64 values; 8 pieces keep 8, and 8 more while one runs again."""
    source = chain(64)
    assert memory(compiled(source, "recompute")) < memory(source) / 3


def test_copies_wait_for_the_gradient_of_their_piece() -> None:
    """In the order in which MindSpore runs the graph no copy runs before the forward part has ended."""
    graph = sixteen_again().graphs["step"]
    order = running_order(graph)
    loss = next(at for at, node in enumerate(order) if node.name == "loss")
    assert all(at > loss for at, node in enumerate(order) if DUPLICATED in node.marks)


def test_what_the_backward_part_computes_of_the_forward_part_alone_waits() -> None:
    """Each layer's result turned round twice for its gradient: both would run, and be kept, in the forward part.
    At the last one nothing is known by then that is not known before."""
    source = chain(8)
    graph = source.graphs["step"]
    for node in [node for node in graph if node.op.name == "TanhGrad"]:
        with graph.inserting_before(node):
            for _ in range(2):
                node.set_operand(0, graph.create("Neg", [node.operand(0)], node.type, scope=node.scope))
                node.operand(0).marks = dict(node.marks)  # type: ignore[attr-defined]
    found = compiled(source, "recompute{match=block0*}")
    assert "14 nodes of the backward part made to wait for a gradient" in found.reports[-1].summary
    assert memory(found) < memory(compiled(chain(8), "recompute{match=block0*}")) + 3 * 4 * WIDTH < memory(source)
    same(found, source)


def test_a_copy_names_what_it_was_copied_from() -> None:
    found = [n for n in compiled(chain(4), "recompute").graphs["step"] if DUPLICATED in n.marks]
    for copy in found:
        assert copy.origin is not None
        assert copy.origin.passes == ("recompute",)
        (of,) = copy.origin.sources
        assert (of[0], copy.scope.startswith("recompute_Default/block")) == (copy.op.name[0].lower(), True)


def test_a_normalisation_moves_its_statistics_once() -> None:
    """Its copies are at rest and read the first one's mean and variance; no other node takes the moving ones."""
    source = compiled(material("lenet_bn"), "batch-size{size=64}")
    graph = compiled(source, "recompute{match=*LeNetBatchNorm}").graphs["step"]
    first, again = (
        [n for n in graph if n.op.name == "BatchNorm" and (DUPLICATED in n.marks) is copy] for copy in (False, True)
    )
    assert len(first) == len(again) == 2
    assert all(rests(node) for node in again)
    assert not any(isinstance(v, State) for node in again for v in node.operands)
    sources = {node.operand(i).operand(0) for node in again for i in (3, 4)}  # type: ignore[attr-defined]
    assert sources == set(first)


def test_a_mask_is_drawn_once_and_multiplied_with_again() -> None:
    value, pair = "float32[64,64]", "(float32[64,64], float32[64,64])"
    forward, backward = (
        'scope("Default/a") primal {unique_id = "1"}',
        'scope("Gradients/a") primal {forward_unique_id = "1"}',
    )
    source = parse_program(f"""
        state %w: {value} role=weight
        graph @step(%x: {value}) {{
          %w0 = Load(%w, umonad) : {value}
          %e = Mul(%x, %w0) : {value} {forward}
          %d = Dropout(%e, 0.5, 1, 2) : {pair} {forward}
          %y = TupleGetItem(%d, 0) : {value} {forward}
          %z = Square(%y) : {value} {forward}
          %loss = ReduceSum(%z, (0, 1), false, false) : float32[] {forward.replace("/a", "/loss")}
          %one = OnesLike(%z) : {value} {backward}
          %dy = Mul(%one, %y) : {value} {backward}
          %m = TupleGetItem(%d, 1) : {value} {backward}
          %de = DropoutGrad(%dy, %m) {{keep_prob = 0.5}} : {value} {backward}
          %dw = Mul(%de, %x) : {value} {backward}
          %a = AssignSub(%w, %dw, umonad) : {value}@w
          %u = UpdateState(umonad, %a)
          %r = Depend(%loss, %u)
          return %r
        }}""")
    graph = compiled(source, "recompute{match=a}").graphs["step"]
    again = [node.op.name for node in graph if DUPLICATED in node.marks]
    assert again == ["Mul", "DropoutGrad", "TupleGetItem"]
    assert sum(node.op.name == "Dropout" for node in graph) == 1
    assert len({node.operand(1) for node in graph if node.op.name == "DropoutGrad"}) == 1


def test_clean_ups_leave_the_copies_alone() -> None:
    found = sixteen_again()
    clean = compiled(found, "common-subexpression-elimination,dead-code-elimination,effect-chain-minimization")
    assert copies(clean) == copies(found)
    assert memory(clean) == memory(found)


def test_cells_are_named_by_their_scope() -> None:
    found = compiled(chain(16), "recompute{match=block1*}")
    again = {node.scope for node in found.graphs["step"] if DUPLICATED in node.marks}
    assert again
    assert all("/block1-Block/" in scope for scope in again)
    with pytest.raises(NotApplicable, match=r"no cell matches 'nowhere\*'"):
        compiled(chain(16), "recompute{match=nowhere*}")


def test_each_value_that_is_kept_has_its_reason() -> None:
    found = sixteen_again()
    report = next(r for r in found.reports if r.name == "recompute")
    assert report.changed == copies(found)
    assert {miss.reason.partition(": ")[2] for miss in report.misses} == {
        "what runs again starts from it",
        "it is not in what was chosen",
    }
    assert all(miss.site.startswith("step: %t") for miss in report.misses), "of what the backward part takes alone"


def test_what_cannot_be_asked_for() -> None:
    with pytest.raises(OptionError, match="give match or budget, not both"):
        compiled(chain(4), "recompute{match=a,budget=1GB}")
    with pytest.raises(OptionError, match="give a number with a unit"):
        compiled(chain(4), "recompute{budget=much}")
    with pytest.raises(NotApplicable, match="nothing can run again: no piece around it would save memory"):
        compiled(chain(1), "recompute")
    with pytest.raises(NotApplicable, match="no graph has a backward part"):
        compiled(parse_program("graph @net(%x: float32[4]) {\n%y = Exp(%x)\nreturn %y\n}\n"), "recompute")


FIRST = "%d = StandardNormal((64,), 1, 2) : float32[64] @f"
AS_LARGE = f"""
state %w: float32[64] role=weight
graph @step(%x: float32[64]) {{
  {FIRST}
  %e = Exp(%d) : float32[64] scope("Default/cell/Exp-op0") @f
  %n = Neg(%e) : float32[64] scope("Default/cell/Neg-op0") @f
  %loss = ReduceSum(%n, (0,), false, false) : float32[] @f
  %l = OnesLike(%n) : float32[64] @b
  %g = Mul(%l, %e) : float32[64] @b
  %a = AssignSub(%w, %g, umonad) : float32[64]@w
  %u = UpdateState(umonad, %a)
  %end = Depend(%loss, %u)
  return %end
}}"""


KEEPS_AS_MUCH = "its copy would start from values that take as much memory"
IN_NO_PIECE = "no piece around it would save memory"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ("", KEEPS_AS_MUCH), ("{policy=pointwise}", IN_NO_PIECE), ("{policy=all}", KEEPS_AS_MUCH),
        ("{match=cell}", KEEPS_AS_MUCH),
    ],
)  # fmt: skip
def test_what_gains_nothing_is_an_error(
    options: str, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """%e could be computed again from %d, of its size, which would be kept then."""
    source, out = tmp_path / "cell.ir", tmp_path / "x.boost"
    program(AS_LARGE).save(str(source))
    refused = shell(capsys, compile_, source, "--passes", f"recompute{options}", "-o", out)
    assert (refused.code, out.exists()) == (2, False)
    assert f"nothing can run again: {why}. Leave the pass out" in refused.err
    assert ("policy=all, which runs more" in refused.err) == (options in ("", "{policy=pointwise}"))


def test_what_starts_from_an_input_is_gained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is there anyway."""
    source, out = tmp_path / "cell.ir", tmp_path / "x.boost"
    program(AS_LARGE.replace(FIRST, "").replace("Exp(%d)", "Exp(%x)")).save(str(source))
    done = shell(capsys, compile_, source, "--passes", "recompute{match=cell}", "-o", out)
    assert done.code == 0, done.err
    assert "1 node run again; 256 B need not be kept" in done.out + done.err


def test_a_budget_that_is_too_small_says_which_one_works(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, out = tmp_path / "chain.ir", tmp_path / "x.boost"
    chain(16).save(str(source))
    refused = shell(capsys, compile_, source, "--passes", "recompute{budget=1MB}", "-o", out)
    assert refused.code == 2
    assert "nothing fits into" in refused.err
    assert not out.exists()
    smallest = refused.err.partition("The smallest budget that works is ")[2].partition(" MB")[0]
    done = shell(capsys, compile_, source, "--passes", f"recompute{{budget={smallest}MB}}", "-o", out)
    assert done.code == 0, done.err
    assert "run again" in done.out + done.err
    done = shell(capsys, compile_, source, "--passes", "recompute{budget=1GB}", "-o", out)
    assert done.code == 0, done.err
    assert re.search(r"nothing runs again: the estimate of [\d.]+ MB fits as it is", done.out)
    assert re.search(r"step: %.*: kept \(.*\): it fits as it is\n", done.out)


def test_a_program_that_was_recomputed_already_trains_to_the_same_bits() -> None:
    source = chain(16)
    once = compiled(source, "recompute{match=block1*}")
    twice = compiled(once, "recompute")
    assert copies(twice) > copies(once)
    same(twice, source)


def test_a_gradient_inside_of_the_loss_runs_again_as_the_forward_part_does() -> None:
    """As in a differential equation: the loss holds the derivative of exp(wx) by x, and is differentiated by w."""
    before = program("""
program @p {
  target cpu
  schedule @step
}
state %w: float32[64] role=weight trainable=true
graph @step(%x: float32[64]) -> (loss) {
  %a = Load(%w, umonad)
  %wx = Mul(%x, %a) : float32[64] @f
  %e = Exp(%wx) : float32[64] @f
  %inner = Mul(%e, %a) : float32[64] scope("Gradients/a") primal {unique_id = "4", forward_unique_id = "1"}
  %q = Square(%inner) : float32[64] @f
  %loss = ReduceSum(%q, (0,), false, false) : float32[] @f
  %dq = Mul(%inner, 2.0) : float32[64] @b
  %de = Mul(%dq, %a) : float32[64] @b
  %dwx = Mul(%de, %e) : float32[64] @b
  %g1 = Mul(%dwx, %x) : float32[64] @b
  %g2 = Mul(%dq, %e) : float32[64] @b
  %g = Add(%g1, %g2) : float32[64] @b
  %step = Mul(%g, 0.001) : float32[64]
  %u1 = UpdateState(umonad, %a)
  %new = AssignSub(%w, %step, %u1)
  %u2 = UpdateState(%u1, %new)
  %r = Depend(%loss, %u2)
  return %r
}""")
    after = compiled(before, "recompute{policy=all}")
    assert {n.op.name for n in after.graphs["step"] if DUPLICATED in n.marks} == {"Mul", "Exp"}
    same(after, before)


def test_the_summary_and_the_anatomy_count_the_copies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, out = tmp_path / "chain.ir", tmp_path / "x.boost"
    chain(16).save(str(source))
    assert shell(capsys, compile_, source, "--passes", "recompute", "-o", out).code == 0
    count = copies(sixteen_again())
    assert f"recomputed {count}" in shell(capsys, inspect_, out).out
    said = shell(capsys, inspect_, out, "--format", "anatomy", "--annotations").out.splitlines()
    assert sum(line.split()[0] == "recomputed" for line in said if line) == count
    assert "recomputed" not in shell(capsys, inspect_, source).out
