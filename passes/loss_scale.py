"""Loss scaling: gradients computed from a multiple of the loss, divided by it before the optimizer sees them."""

from __future__ import annotations

from collections.abc import Sequence

from ..ir.analysis.derivative.linearity import find_seeds, late_seeds
from ..ir.analysis.training.gradient_path import updating_graphs
from ..ir.analysis.training.network import network_parts
from ..ir.core.attributes import scalar_tensor
from ..ir.core.errors import OptionError
from ..ir.core.graph import Graph
from ..ir.core.names import LOSS, LOSS_SCALE
from ..ir.core.program import Program
from ..ir.core.report import PassResult
from ..ir.core.sites import site
from ..ir.core.types import tensor
from ..ir.core.wording import counted
from ..ir.rewrite.effects.editing import Effects
from ..ir.rewrite.scale_seeds import scale_seeds
from .framework.base import Pass
from .framework.options import option
from .step.crossings import accumulated, crossings, derived_weights, gradients_at
from .step.dynamic_loss_scale import SCOPE, put_scale_rule, refuse_second_scale
from .step.names import CLEAN, SCALE, SKIPPED
from .step.normalisation import change_divisor, declare_divisor, divide_gradients
from .step.results import named_results, with_results

INITIAL = {"static": 1024.0, "dynamic": 65536.0}


class LossScale(Pass):
    """Multiplies the initial gradients by a scale and divides the gradients by it once, before all else.

    So gradients survive that float16 would round to zero. The loss stays as it was. The pass proves on the graph,
    operator by operator, that all gradients are linear in the initial ones, or refuses. ``assume_linear`` names
    operators of your own that are.

    With ``mode=dynamic`` the scale is divided by ``factor`` after a window with overflow, and multiplied by it after
    ``window`` windows in a row without, within ``min`` and ``max``, as in ``nn.DynamicLossScaleUpdateCell``. The pass
    brings ``overflow-check`` along. Without ``init`` the scale begins at 1024 (static) or 65536 (dynamic).

    Outputs: ``loss_scale``, the scale of the step's gradients. State: ``loss_scale.value``,
    ``loss_scale.clean_cycles``.

    Preserves training up to rounding, and exactly with powers of two where nothing under- or overflows.

    Source: Micikevicius et al., Mixed Precision Training, 2018.
    """

    name = "loss-scale"
    at_stage = "unscale"
    mode: str = option("dynamic", help="a fixed scale, or one that follows overflows", choices=("static", "dynamic"))
    init: float | None = option(None, help="the scale to begin with", minimum=2.0**-24, maximum=2.0**64)
    factor: float = option(2.0, help="by how much a dynamic scale shrinks and grows", minimum=1.0)
    window: int = option(2000, help="windows without overflow after which it grows", minimum=1)
    min: float = option(1.0, help="least dynamic scale", minimum=2.0**-24)
    max: float = option(2.0**24, help="largest dynamic scale", maximum=2.0**64)
    assume_linear: tuple[str, ...] = option((), help="operators taken as linear in their first backward operand")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mode == "dynamic":
            if self.factor <= 1:
                raise OptionError(f"pass '{self.name}': option 'factor' must be above 1, not {self.factor:g}")
            if not self.min <= self.initial <= self.max:
                raise OptionError(
                    f"pass '{self.name}': init={self.initial:g} is not between min={self.min:g} and max={self.max:g}"
                )

    @property
    def initial(self) -> float:
        return INITIAL[self.mode] if self.init is None else self.init

    def needs(self, program: Program) -> Sequence[str]:
        return ["overflow-check"] if self.mode == "dynamic" and SKIPPED not in program.state else []

    def run(self, program: Program) -> PassResult:
        result = self.result()
        refuse_second_scale(program, self.name)
        number = tensor("float32")
        scale = scalar_tensor("float32", self.initial)
        program.add_state(SCALE, number, "loss-scale", scale.data)
        if self.mode == "dynamic":
            rule = {"factor": self.factor, "window": self.window, "min": self.min, "max": self.max}
            program.state[SCALE].info.update(rule)
            program.add_state(CLEAN, number, "loss-scale")
        updating = updating_graphs(program)
        weights = derived_weights(updating)
        places = 0
        multiplied: dict[str, int] = {}
        for name, graph in program.graphs.items():
            seeds, leaving = self._scale(graph, result, updates=graph in updating)
            places = max(places, leaving)
            if leaving:
                multiplied[name] = seeds
        result.matched = result.changed = len(weights)
        put_scale_rule(program)
        result.statistics = {f"seeds multiplied in {name}": n for name, n in multiplied.items()}
        n = max(multiplied.values(), default=0)
        result.summary = (
            f"{counted(n, 'seed')} of {gradients_at(len(weights), places)} multiplied by {self.initial:g} "
            f"({self.mode}), the gradients divided by it once"
        )
        return result

    def _scale(self, graph: Graph, result: PassResult, *, updates: bool) -> tuple[int, int]:
        """Returns how many seeds were multiplied, for values that leave the backward part at how many places."""
        fx = Effects(graph)
        scale = fx.load(graph.state(SCALE, tensor("float32")), scope=SCOPE)
        wanted = crossings(graph)
        if wanted:
            seeds = find_seeds(graph, network_parts(graph), wanted, assume_linear=self.assume_linear)
            loss = [value for name, value in named_results(graph) if name == LOSS]
            for seed in late_seeds(graph, network_parts(graph), seeds, loss):
                result.miss(
                    f"{graph.name}: {site(seed.value)}",
                    "multiplied only here, behind a gradient of the loss that the cell goes on computing with: what "
                    "rounds to zero in front of that is lost",
                )
            made = scale_seeds(graph, seeds, scale, scope=SCOPE)
        else:
            made = []
        if updates and not change_divisor(graph, lambda old: graph.create("Mul", [old, scale], scope=SCOPE)):
            divisor = declare_divisor(scale)
            # A constant has no derivative in it to be scaled.
            sums = [use for start in accumulated(graph) if not start.is_constant for use in start.uses]
            divide_gradients(graph, dict.fromkeys(sums or wanted, divisor), scope=SCOPE)
        # A copy: what is returned must not be the memory that the end of the cycle writes.
        shown = graph.create("TensorMove", [scale], scope=SCOPE)
        fx.commit(with_results(graph, [(LOSS_SCALE, shown)]))
        return len(made), len({user.operand(i) for user, i in wanted})
