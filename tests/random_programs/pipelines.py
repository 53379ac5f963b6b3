"""Random pipelines, and what can be read off one as text."""

from __future__ import annotations

import re

from hypothesis import strategies as st

CLEANUP = ("common-subexpression-elimination", "effect-chain-minimization", "dead-code-elimination")
CENTRALIZATION = "tag-gradient-centralization,lower-gradient-centralization"
"""Passes that belong together are one piece of the pipeline."""


@st.composite
def accumulations(draw: st.DrawFn, weight: str | None) -> str:
    steps, split = draw(st.sampled_from((2, 1, 3, 4))), draw(st.sampled_from(("apply", "fused")))
    reductions = ("mean", "mean", "sum") if weight is None else ("weighted", "mean", "sum")
    reduction = draw(st.sampled_from(reductions))
    more = f",weight={weight}" if reduction == "weighted" else ""
    dtype = draw(st.sampled_from(("float32", "same")))
    # A cell that updates where its loss is small asks the last one, as the reference does.
    return f"gradient-accumulation{{steps={steps},split={split},reduction={reduction},dtype={dtype},carry=last{more}}}"


@st.composite
def pipelines(draw: st.DrawFn, weight: str | None) -> tuple[str, ...]:
    """Passes in a random order, each with random valid options; half of the pipelines accumulate."""
    found = []
    if draw(st.booleans()):
        found.append(draw(accumulations(weight)))
    if draw(st.integers(0, 2)) == 2:
        policy = draw(st.sampled_from(("skip-cycle", "skip-micro")))
        found.append(f"overflow-check{{policy={policy}}}")
    scale = draw(st.integers(0, 5))
    if scale == 3:
        found.append(f"loss-scale{{mode=static,init={draw(st.sampled_from((1024, 2, 0.5)))}}}")
    elif scale == 4:
        init, factor = draw(st.sampled_from((1024, 16))), draw(st.sampled_from((2, 4)))
        found.append(f"loss-scale{{mode=dynamic,init={init},factor={factor},window={draw(st.sampled_from((2, 3)))}}}")
    elif scale == 5:
        groups, init = draw(st.sampled_from((2, 3))), draw(st.sampled_from((1024, 16)))
        found.append(f"group-loss-scale{{groups={groups},init=[{init}],window=2}}")
    if draw(st.integers(0, 2)) == 2:
        by = draw(st.sampled_from(("global-norm", "tensor-norm", "value")))
        limit, report = draw(st.sampled_from((0.05, 1.0))), draw(st.sampled_from(("false", "true")))
        found.append(f"clip-gradients{{by={by},limit={limit},report_norm={report}}}")
    if draw(st.integers(0, 3)) == 3:
        found.append(CENTRALIZATION)
    other = draw(st.integers(0, 11))
    if other == 8:
        groups, type_ = draw(st.sampled_from((2, 3))), draw(st.sampled_from(("interval", "continuous")))
        found.append(f"gradient-freeze{{groups={groups},type={type_},total_steps=8,probability=0.25}}")
    elif other == 9:
        found.append("less-bn")
    elif other == 10:
        found.append(f"normalised-head{{bias={draw(st.sampled_from(('keep', 'drop')))}}}")
    elif other == 11:
        rank, factor = draw(st.sampled_from(("matrix", "vector"))), draw(st.sampled_from((0.5, 0.0, 2.0)))
        found.append(f"parameter-groups{{rank={rank},lr_factor={factor}}}")
    if draw(st.integers(0, 4)) == 4:
        found.append(draw(st.sampled_from(("data-parallel", "adasum"))))
    found += [name for name in CLEANUP if draw(st.integers(0, 3)) == 3]
    return tuple(draw(st.permutations(found)))


def split(piece: str) -> list[str]:
    """The passes of a piece of a pipeline, each with its options."""
    return re.findall(r"[a-z-]+(?:\{[^}]*\})?", piece)


def name_of(text: str) -> str:
    return text.partition("{")[0]


def option_of(passes: list[str], name: str, option: str, default: str) -> str:
    """An option of the pass of that name as text; the default where there is no such pass or option."""
    for text in passes:
        if name_of(text) == name:
            found = re.search(rf"[{{,]{option}=([^,}}]*)", text)
            return found[1] if found else default
    return default
