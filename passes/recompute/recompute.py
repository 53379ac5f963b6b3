"""The pass ``recompute``."""

from __future__ import annotations

from ...ir.core.errors import NotApplicable, OptionError
from ...ir.core.graph import Node
from ...ir.core.program import Program
from ...ir.core.report import PassResult
from ...ir.core.wording import counted, parse_bytes, print_budget, print_bytes
from ..framework.base import Pass
from ..framework.options import option
from .budget import fitting, least, write
from .candidates import Forward, bytes_of, forward_of, prepare
from .clones import Copies
from .plans import Plan, cells, root_blocks

POINTWISE, BLOCKS, ALL = "pointwise", "blocks", "all"


class Recompute(Pass):
    """Computes parts of the forward part again in the backward part, so that their results need not be kept.

    The forward part is cut into pieces at narrow places. A value that one piece hands to another is kept. What the
    backward part takes from inside of a piece is computed again when the gradient reaches the piece. ``policy`` says
    what of a piece runs again: ``pointwise`` what costs little time (no matrix product, no convolution), ``blocks`` and
    ``all`` everything, in pieces of other sizes. ``match`` runs the cells again whose scope a glob names, as
    ``Cell.recompute`` does. ``budget`` finds what to run again so that a session stays below so many bytes, for the
    least extra time.

    Draws, changes of state, exchanges between ranks and calls of functions never run again. A Dropout's mask is kept. A
    BatchNorm in training normalises again by the mean and variance that it found (on CPU), and its statistics move
    once.

    Preserves training bit for bit.

    Source: Chen et al., Training Deep Nets with Sublinear Memory Cost, 2016; the minimum cut follows PyTorch's
    partitioner for activations.
    """

    name = "recompute"
    late = True
    policy: str = option(BLOCKS, help="what of each piece runs again", choices=(POINTWISE, BLOCKS, ALL))
    match: str | None = option(None, help="run the cells again whose scope matches this glob instead")
    budget: str | None = option(None, help="bytes that a session may grow by (450MB): find what to run again")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.match is not None and self.budget is not None:
            raise OptionError(f"pass '{self.name}': give match or budget, not both")
        if self.budget is not None:
            parse_bytes(self.budget)

    def run(self, program: Program) -> PassResult:
        result = self.result()
        forwards = {name: forward_of(graph, program.target) for name, graph in program.graphs.items()}
        if not any(forward.wanted for forward in forwards.values()):
            raise NotApplicable("no graph has a backward part that takes values of a forward part")
        plan = self._search(program, result)
        if plan is None:
            result.summary = f"nothing runs again: the estimate of {result.statistics['estimate']} fits as it is"
            for name, forward in forwards.items():
                result.matched += len(forward.wanted)
                for node in (node for node in forward.nodes if node in forward.kept):
                    result.miss(f"{name}: %{node.name}", f"kept ({print_bytes(bytes_of(node))}): it fits as it is")
            return result
        refused: dict[str, None] = {}
        late = 0
        for name, graph in program.graphs.items():
            late += prepare(graph)
            forwards[name] = forward_of(graph, program.target)
            done = write(forwards[name], plan)
            refused |= _report(forwards[name], done, name, result)
        if not result.changed and self.budget is None:
            raise NotApplicable(self._nothing(result, refused))
        saved = result.statistics["bytes not kept"]
        result.summary = f"{counted(result.changed, 'node')} run again; {print_bytes(saved)} need not be kept"
        if late:
            result.summary += f"; {counted(late, 'node')} of the backward part made to wait for a gradient"
            result.changed += late
        return result

    def _search(self, program: Program, result: PassResult) -> Plan | None:
        """The plan that the options name, or that a search finds; None where a budget asks for nothing."""
        if self.budget is not None:
            found, tried = fitting(program, parse_bytes(self.budget))
        elif self.match is not None:
            glob = self.match
            return lambda forward: cells(forward, glob)
        elif self.policy == BLOCKS:
            return root_blocks
        else:
            found, tried = least(program, little=self.policy == POINTWISE)
        result.statistics |= {"plan": found.text, "estimate": print_budget(found.bytes)}
        result.statistics["tried"] = [one.line() for one in tried]
        return found.plan

    def _nothing(self, result: PassResult, refused: dict[str, None]) -> str:
        """``refused``: why pieces that were chosen do not run again."""
        if self.match is not None and not refused:
            return f"no cell matches '{self.match}' that computes what the backward part takes"
        reasons = refused or dict.fromkeys(miss.reason.partition(": ")[2] for miss in result.misses)
        why = "; ".join(reasons or ("the backward part takes only what must be kept",))
        more = "" if self.match is not None or self.policy == ALL else ", or take policy=all, which runs more again"
        return f"nothing can run again: {why}. Leave the pass out{more}"


def _report(forward: Forward, done: Copies, graph: str, result: PassResult) -> dict[str, None]:
    """Counts what runs again; each other value that the backward part takes is a miss with the reason. Returns the
    reasons of those that were to run again."""
    refused: dict[str, None] = {}
    result.changed += len(done.copied)
    result.matched += len(forward.wanted)
    for node in forward.nodes:
        if node in forward.kept and node not in done.copied:
            reason = _reason(node, forward, done)
            result.miss(f"{graph}: %{node.name}", f"kept ({print_bytes(bytes_of(node))}): {reason}")
            if node in done.unguarded or node in done.useless:
                refused[reason] = None
    result.statistics["bytes not kept"] = result.statistics.get("bytes not kept", 0) + done.saved
    return refused


def _reason(node: Node, forward: Forward, done: Copies) -> str:
    source = node.operand(0) if node.op.name == "TupleGetItem" and node.num_operands else node
    obstacle = forward.obstacles[node] or (forward.obstacles.get(source, "") if isinstance(source, Node) else "")
    if obstacle:
        return obstacle
    if node in done.unguarded:
        return "the backward part begins with it, and no gradient comes before, for which a copy could wait"
    if node in done.useless:
        return "its copy would start from values that take as much memory"
    if not done:
        return "no piece around it would save memory"
    return "what runs again starts from it" if node in done.starts else "it is not in what was chosen"
