"""A batch made to fit into memory: which micro-batch is chosen, what the table says, what is refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from boost_compile.ir.analysis.cost.times import of_cycle
from boost_compile.ir.core.errors import OptionError, PassError
from boost_compile.ir.core.wording import parse_bytes
from boost_compile.runtime.engine.footprint import footprint
from boost_compile.tools.budget import batch_size, lines_of
from boost_compile.tools.compile import command as compile_
from boost_compile.tools.inspect import command as inspect

import boost_compile as bc
from tests.passes.recompute.chain import chain
from tests.tools.support import shell

Exported = Callable[[str], Path]


@pytest.mark.parametrize(
    ("text", "count"), [("8GB", 8 * 10**9), ("7.5 GiB", 15 << 29), ("500mb", 5 * 10**8), ("123", 123)]
)
def test_bytes(text: str, count: int) -> None:
    assert parse_bytes(text) == count


@pytest.mark.parametrize("text", ["", "GB", "-1GB", "nan", "0MB", "64k", "8 bananas", "inf"])
def test_no_bytes(text: str) -> None:
    with pytest.raises(OptionError):
        parse_bytes(text)


def test_the_largest_micro_batch_that_fits(exported: Exported) -> None:
    program = bc.load(str(exported("lenet_bn")))

    def needs(size: int, steps: int) -> int:
        passes = [*([f"batch-size{{size={size}}}"] if size != 4 else []), f"gradient-accumulation{{steps={steps}}}"]
        return footprint(bc.compile(program, ",".join(passes))).total

    budget = (needs(64, 4) + needs(128, 2)) // 2
    plan = bc.plan_memory(program, budget, 256)
    assert (plan.chosen.size, plan.chosen.steps) == (64, 4)
    assert plan.chosen.bytes == needs(64, 4) <= budget
    assert [c.size for c in plan.candidates] == [256, 128, 64]
    assert bc.compile(program, plan.pipeline).micro_batches() == 4
    assert batch_size(bc.compile(program, plan.pipeline)) == 64


def test_a_graph_that_keeps_its_batch_is_accumulated_as_it_is(exported: Exported) -> None:
    plan = bc.plan_memory(bc.load(str(exported("hidden_state"))), 10**9, 16)
    assert (plan.chosen.size, plan.chosen.steps, plan.pipeline) == (4, 4, "gradient-accumulation{steps=4}")
    assert "cannot change its batch" in plan.candidates[0].refused


def test_what_does_not_fit_is_also_tried_with_parts_computed_again() -> None:
    """Both are in the table, and what fits and takes less time is taken: here smaller micro-batches."""
    source = chain(64)
    plain = footprint(source).total
    budget = plain - 100_000
    plan = bc.plan_memory(source, budget)
    whole, again = plan.candidates[:2]
    assert (whole.size, whole.bytes, whole.recompute) == (again.size, plain, False)
    assert again.recompute
    assert again.bytes <= budget < whole.bytes
    assert whole.time == of_cycle(source) < again.time
    assert footprint(bc.compile(source, f"recompute{{budget={budget}}}")).total == again.bytes
    assert plan.chosen.time == min(c.time for c in plan.candidates if c.time and c.bytes <= budget)
    assert "recompute" in "".join(lines_of(plan.candidates, plan.chosen))


def test_why_a_size_is_not_possible_is_said_in_full_and_once(
    exported: Exported, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("--memory-budget", "1GB", "--batch", 16, "-o", tmp_path / "a.boost")
    done = shell(capsys, compile_, exported("hidden_state"), *arguments)
    assert done.code == 0
    assert "not possible with 16, 8: graph 'step' cannot change its batch of 4" in done.err
    assert done.err.count("state 'hidden' (float32[4,16]) has the batch's extent but does not grow with it") == 1


def test_nothing_fits(exported: Exported) -> None:
    with pytest.raises(PassError, match=r"nothing fits into 1 MB") as caught:
        bc.plan_memory(bc.load(str(exported("mlp"))), 10**6, 8)
    assert "micro-batch   steps" in str(caught.value)
    with pytest.raises(OptionError, match="it must be more than nothing"):
        bc.plan_memory(bc.load(str(exported("mlp"))), -1)


def test_in_python_a_budget_may_be_a_text_and_a_plan_prints_its_table(exported: Exported) -> None:
    program = bc.load(str(exported("mlp")))
    plan = bc.plan_memory(program, "1GB", 8)
    assert plan == bc.plan_memory(program, 10**9, 8)
    assert str(plan).splitlines()[-1].endswith("chosen")


def test_an_open_batch_cannot_be_told(exported: Exported) -> None:
    with pytest.raises(PassError, match="is open"):
        bc.plan_memory(bc.load(str(exported("mlp_dynamic_batch"))), 10**9)


def test_command(exported: Exported, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, out, none = exported("mlp"), tmp_path / "x.boost", tmp_path / "y.boost"
    done = shell(capsys, compile_, source, "--memory-budget", "1GB", "--batch", 8, "-o", out)
    assert done.code == 0
    assert "chosen" in done.err
    assert batch_size(bc.load(str(out))) == 8
    wrong = shell(capsys, compile_, source, "--memory-budget", "1kB", "-o", none)
    assert wrong.code == 2
    assert "nothing fits into 0 MB" in wrong.err
    assert not none.exists()
    (enough,) = re.findall(r"Give (\d+) MB or more\.", wrong.err)
    assert shell(capsys, compile_, source, "--memory-budget", f"{int(enough) - 1}MB", "-o", none).code == 2
    assert shell(capsys, compile_, source, "--memory-budget", f"{enough}MB", "-o", none).code == 0
    assert shell(capsys, compile_, source, "--memory-budget", "1GB", "--accumulate", 2).code == 2
    assert shell(capsys, compile_, source, "--batch", 8).code == 2


def test_inspect(exported: Exported, capsys: pytest.CaptureFixture[str]) -> None:
    done = shell(capsys, inspect, exported("mlp"), "--memory")
    assert done.code == 0
    assert "state, one copy" in done.out
    assert "Values alive while step runs" in done.out
    assert "█" in done.out
    assert "Alive at the peak" in done.out
    assert "in all" in done.out
