"""Writes docs/passes.md, the passes with their options, from the registry.

    python docs/make_passes.py         # `--check` writes nothing, and fails where the page is not what it would write

Each pass tells its own sentence, promise, source and options. This script knows only in which order a reader wants to
meet the passes, and which other pages tell more of them.
"""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

from boost_compile.passes.framework.base import Pass
from boost_compile.passes.framework.options import REQUIRED, Option, declared_options, print_value
from boost_compile.passes.framework.registry import CLASSES, REGISTRY
from docstrings import in_markdown

PAGE = Path(__file__).parent / "passes.md"

GROUPS = {
    "Bigger batches": {
        "gradient-accumulation": "[the tutorial](tutorial.md), [how it works](architecture.md#gradient-accumulation)",
        "batch-size": "[memory.md](memory.md)",
        "recompute": "[memory.md](memory.md#compute-again-what-need-not-be-kept)",
    },
    "Safe precision": {
        "mixed-precision": "[mixed-precision.md](mixed-precision.md)",
        "loss-scale": "[how it works](architecture.md#around-the-optimizer)",
        "group-loss-scale": "[how it works](architecture.md#around-the-optimizer)",
        "overflow-check": "[how it works](architecture.md#around-the-optimizer)",
    },
    "Gradients and rates": {
        "clip-gradients": "[clipping on several ranks](distributed.md#clipping-before-or-after-the-sum)",
        "gradient-centralization": "[from mindspore.boost](from-mindspore-boost.md#optimizerprocess)",
        "tag-gradient-centralization": "",
        "lower-gradient-centralization": "",
        "parameter-groups": "[from mindspore.boost](from-mindspore-boost.md#parameterprocess)",
        "schedule": "[another learning rate](fine-tuning.md#another-learning-rate)",
        "replace-optimizer": "[another optimizer](fine-tuning.md#another-optimizer)",
    },
    "Weights": {
        "weight-average": "[fine-tuning.md](fine-tuning.md#averages-of-weights)",
        "monitor": "[training.md](training.md#which-layer-goes-wrong)",
    },
    "Less work, other networks": {
        "freeze": "[fine-tuning.md](fine-tuning.md)",
        "lora": "[fine-tuning.md](fine-tuning.md#adapters)",
        "gradient-freeze": "[from mindspore.boost](from-mindspore-boost.md#gradientfreeze-freezeopt-freeze_cell)",
        "less-bn": "[from mindspore.boost](from-mindspore-boost.md#lessbn)",
        "normalised-head": "[from mindspore.boost](from-mindspore-boost.md#lessbn)",
        "dim-reduce": "[from mindspore.boost](from-mindspore-boost.md#dimreduce)",
    },
    "Several ranks": {
        "data-parallel": "[distributed.md](distributed.md)",
        "shard-optimizer": "[distributed.md](distributed.md#each-rank-holds-a-part-of-the-optimizer)",
        "adasum": "[distributed.md](distributed.md#adasum)",
    },
    "Targets": {
        "legalize": "[compatibility.md](compatibility.md#targets)",
        "patch-convolution": "[compatibility.md](compatibility.md)",
    },
    "Clean-ups": {
        "effect-chain-minimization": "[effects](architecture.md#effects)",
        "common-subexpression-elimination": "",
        "dead-code-elimination": "",
    },
}
"""The passes as a reader meets them, and the pages that tell more of each."""

HEAD = """# Passes

`python docs/make_passes.py` writes this page from the registry of passes, and a test holds it to them.
`boost-compile --list-passes` prints the same on a terminal.

A pipeline is one string. It is the same in the shell, in Python and in a bug report:

    boost-compile model.mindir --passes 'gradient-accumulation{steps=8,split=fused},overflow-check'

You may write the passes in any order: the compiler puts them into the order that works. The passes around the
optimizer act once a window (the micro-batches of one optimizer step), on the mean of its gradients. An overflow
anywhere in a window skips the whole update: step count, optimizer state and learning rate stay, the accumulators are
cleared, and the loss scale moves once.

Where an option takes a list, one value stands for a list of one: `freeze{match=*embedding*}` is
`freeze{match=[*embedding*]}`.

A pass that you ask for and that matches nothing is an error. `less-bn?` is the optional form: it warns instead.

*Preserved* means that training gives the same weights up to rounding. *Changed* means that training takes other
steps, and that this is the purpose of the pass.
"""


def main() -> None:
    text = page()
    if "--check" in sys.argv[1:]:
        if PAGE.read_text(encoding="utf-8") != text:
            sys.exit("docs/passes.md is not current: python docs/make_passes.py writes it anew")
        return
    PAGE.write_text(text, encoding="utf-8")


def page() -> str:
    """The whole page."""
    named = [name for group in GROUPS.values() for name in group]
    if sorted(named) != sorted(CLASSES):
        sys.exit(f"GROUPS must name each pass once: {sorted({*named} ^ {*CLASSES})}")
    rows = [overview(REGISTRY[name]) for name in named]
    parts = [HEAD, "\n".join(["| pass | what it does | training |", "|---|---|---|", *rows]) + "\n"]
    for title, group in GROUPS.items():
        parts += [f"## {title}\n", *(section(REGISTRY[name], pages) for name, pages in group.items())]
    return "\n".join(parts).rstrip() + "\n"


def prose(cls: type[Pass]) -> str:
    return in_markdown(inspect.getdoc(cls) or "")


def overview(cls: type[Pass]) -> str:
    training = "preserved" if cls.preserves else "changed"
    return f"| [`{cls.name}`](#{cls.name}) | {prose(cls).partition(chr(10))[0]} | {training} |"


def section(cls: type[Pass], pages: str) -> str:
    parts = [f"### `{cls.name}`\n\n{prose(cls)}\n"]
    if options := declared_options(cls):
        head = ["| option | default | values | meaning |", "|---|---|---|---|"]
        parts.append("\n".join([*head, *map(row, options.values())]) + "\n")
    if pages:
        parts.append(f"More: {pages}.\n")
    return "\n".join(parts)


def row(option: Option) -> str:
    default = "required" if option.default is REQUIRED else f"`{print_value(option.default)}`"
    values = ", ".join(f"`{print_value(choice)}`" for choice in option.choices) or option.type_name
    if option.minimum is not None:
        values += f", at least {option.minimum:g}"
    if option.maximum is not None:
        values += f", at most {option.maximum:g}"
    return f"| `{option.name}` | {default} | {values} | {option.help} |"


if __name__ == "__main__":
    main()
