"""``boost-inspect --format anatomy|paths|effects|batch|seeds``: an analysis of each graph, one statement a line."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from ...ir.analysis.training.gradient_path import is_fed
from ...ir.core.errors import AnatomyError, OptionError, PassError
from ...ir.core.graph import Node
from ...ir.core.naming import printable, spell
from .analysed import Analysed, first_line
from .anatomy import anatomy_lines
from .batch import batch_lines
from .effects import effect_lines
from .paths import path_lines
from .seeds import seed_lines
from .shown import Shown, part_of_cycle

ANALYSES: dict[str, Callable[[Analysed], Iterator[str]]] = {
    "anatomy": anatomy_lines, "paths": path_lines, "effects": effect_lines, "batch": batch_lines, "seeds": seed_lines,
}  # fmt: skip


def print_analysis(shown: Shown, format_: str, chosen: Collection[Node] | None, *, full: bool = False) -> str:
    """The lines of all graphs; a graph that the analysis refuses has one line that says why. ``chosen``: the only nodes
    that lines may be about (None: all). ``full``: a line for every node.

    The analysis's error if it refuses every graph; OptionError if it has nothing to say of the chosen nodes. Linear in
    nodes.
    """
    lines: list[str] = []
    refused: list[AnatomyError | PassError] = []
    for name, graph in shown.program.graphs.items():
        nodes = None if chosen is None else {n for n in graph.all_nodes() if n in chosen}
        if nodes is not None and not nodes:
            continue
        view = Analysed(shown.program, graph, shown.anatomies[name], shown.reasons.get(name, ""), nodes, full)
        try:
            said = list(ANALYSES[format_](view))
        except (AnatomyError, PassError) as error:
            refused.append(error)
            said = [f"none: {first_line(error)}"]
        if said or nodes is None:
            lines += [f"graph @{spell(name)}", *(f"  {printable(line)}" for line in said), ""]
    if refused and len(refused) == lines.count(""):
        raise _refusal(shown, refused)
    if not lines:
        raise OptionError(f"--format {format_} has nothing to say of the nodes that were chosen")
    return "\n".join(lines[:-1]) + "\n"


def _refusal(shown: Shown, refused: list[AnatomyError | PassError]) -> AnatomyError | PassError:
    """One error for the whole program."""
    program, error = shown.program, refused[0]
    if isinstance(error, AnatomyError) and program.pipeline:
        why = f"no graph of this program is a whole training step, as it was compiled already by {program.pipeline}"
        if len(program.graphs) == 1:
            why = part_of_cycle(program, *program.graphs.values()) or why
        file = program.source.get("file")
        fed = any(map(is_fed, program.graphs.values()))
        paths = "\n  --format paths shows the way of its gradients, from the accumulators on" if fed else ""
        return AnatomyError(f"{why}. Look at the file that it was compiled from{f': {file}' * bool(file)}{paths}")
    if len(refused) == 1:
        return error
    return type(error)("\n  ".join(["no graph of this program can be analysed:", *map(str, refused)]))
