"""LoRA: adapters of low rank are trained in the place of weights."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from math import sqrt

from ...ir.analysis.cost.flops import estimated_flops
from ...ir.analysis.training.anatomy import TrainingAnatomy, anatomy
from ...ir.core.attributes import TensorValue
from ...ir.core.data import Data, ZeroData, from_numpy, rounded
from ...ir.core.errors import OptionError, PassError, nearest
from ...ir.core.names import ADAPTER, lora_a_of, lora_b_of
from ...ir.core.program import Program
from ...ir.core.report import PassResult
from ...ir.core.types import DType, TensorType
from ...ir.core.wording import counted, print_bytes
from ...ir.rewrite.effects.editing import Effects
from ...ir.rewrite.new_weight import NewWeight, Repeat, plan_repeat, refuse_second_look, repeat_updates
from ...ir.rewrite.removal import Removal
from ..framework.base import Pass
from ..framework.options import option
from ..step.freezing import freeze_weights
from ..step.matching import trained_matching
from ..step.step import the_step
from .adapters import put_adapter
from .sites import Adapted, Unfit, find_sites

KAIMING, GAUSSIAN = "kaiming-uniform", "gaussian"
ANOTHER_OPTIMIZER = (
    "Ask for replace-optimizer with one that updates each number by itself (adam, momentum) in front of lora; behind "
    "lora it gives adapters any optimizer"
)


class LoRA(Pass):
    """Trains adapters of low rank beside weights that stand still: fine-tuning with few trained numbers.

    A layer x · Wᵀ whose weight matches gets (alpha / rank) · (x · Aᵀ) · Bᵀ added, after its bias. A (rank × inputs)
    begins at random, B (outputs × rank) at zero, so the first loss has the same bits. They are state,
    ``<layer>.lora_A.weight`` and ``<layer>.lora_B.weight``, and trained by the weight's optimizer, with its rate and
    decay.

    All other weights stand still, too; ``train`` keeps some training (a new head, biases, norms). A weight can have an
    adapter that is a matrix and takes part in products alone. Others are reported as missed where a glob matches them,
    and an error where they are named.

    ``boost-run --save-adapter`` and ``Session.save_adapter`` write the adapters alone, as PEFT reads them. ``--weights
    merged`` is the network with the adapters added to its weights.

    Changes training: it is that of other weights.

    Source: Hu et al., LoRA: Low-Rank Adaptation of Large Language Models, 2021. Names, defaults and first values are
    those of PEFT: ``init=kaiming-uniform`` draws A from ±1 / sqrt(inputs), ``gaussian`` with deviation 1 / rank.
    """

    name = "lora"
    preserves = False
    early = True
    match: tuple[str, ...] = option(help="globs over the names of the weights that get an adapter")
    rank: int = option(8, help="the rank of the adapters", minimum=1)
    alpha: float = option(8.0, help="adapters are multiplied by alpha / rank", minimum=0)
    init: str = option(KAIMING, help="how A begins", choices=(KAIMING, GAUSSIAN))
    seed: int = option(0, help="of the first values of A", minimum=0)
    train: tuple[str, ...] = option((), help="globs over the names of weights that are trained as before")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.alpha:
            raise OptionError(f"pass '{self.name}': with alpha=0 adapters would do nothing: give more")

    def run(self, program: Program) -> PassResult:
        result = self.result()
        graph = the_step(program, self.name)
        if any(ADAPTER in node.marks for node in graph.all_nodes()):
            raise PassError("the program has adapters already: ask for lora once, with all globs")
        found = anatomy(graph)
        adapted = self._adapted(program, found, result)
        trained = {info.name for info in found.weights}
        kept = self._kept(program, trained, {a.info.name for a in adapted})
        repeats = self._planned(program, found, adapted)
        size = {name: program.state[name].type.size for name in trained}
        before, slots = estimated_flops(graph), _slot_bytes(program)
        self._put(program, found, adapted, repeats)
        freeze_weights(program, trained - kept)
        new = [n for a in adapted for n in _states(a)]
        numbers = sum(program.state[n].type.size for n in (*new, *kept))
        share = 100 * numbers / max(sum(size.values()), 1)
        saved = 100 * (1 - sum(map(estimated_flops, program.graphs.values())) / max(before, 1))
        result.matched = result.changed = len(adapted)
        result.statistics = {
            "weights with an adapter": len(adapted),
            "trained as before": len(kept),
            "trained numbers": f"{numbers} of {sum(size.values())}",
            "slots": f"{print_bytes(_slot_bytes(program))} of {print_bytes(slots)}",
        }
        result.summary = (
            f"{counted(len(adapted), 'adapter')} of rank {self.rank}: {share:.2g} % of the trained numbers, "
            f"{abs(saved):.0f} % of the estimated FLOPs {'more' if saved < 0 else 'less'}"
        )
        return result

    def _adapted(self, program: Program, found: TrainingAnatomy, result: PassResult) -> list[Adapted]:
        """The weights that get an adapter, in the order of the program's state."""
        weights = [name for name, variable in program.state.items() if variable.role == "weight"]
        fit: dict[str, Adapted] = {}
        unfit: dict[str, str] = {}
        for glob in self.match:
            matching = [name for name in weights if fnmatchcase(name, glob)]
            if not matching:
                raise PassError(f"no weight has the name '{glob}'{nearest(glob, weights)}")
            for name in matching:
                if name not in fit and name not in unfit:
                    try:
                        fit[name] = self._judged(program, found, name)
                    except Unfit as error:
                        unfit[name] = str(error)
            wrong = [name for name in matching if name in unfit]
            if len(wrong) == len(matching):
                of = "" if wrong == [glob] else f", nor any other that matches '{glob}'"
                raise PassError(f"'{wrong[0]}' can have no adapter{of}: {unfit[wrong[0]]}. Leave '{glob}' out of match")
        for name, reason in unfit.items():
            if len(program.state[name].shape) > 1:  # nobody means a bias, where other weights match
                result.miss(name, reason)
        return [fit[name] for name in weights if name in fit]

    def _judged(self, program: Program, found: TrainingAnatomy, name: str) -> Adapted:
        variable = program.state[name]
        if not variable.dtype.is_float:
            raise Unfit(f"it is {variable.type}, and adapters are for weights of floats")
        info = next((info for info in found.weights if info.name == name), None)
        if info is None:
            raise Unfit("nothing trains it, so there is no update to train an adapter by")
        adapted = find_sites(found, info)
        least = min(adapted.inputs, adapted.outputs)
        if least < 2:
            raise Unfit(f"it is {variable.type}, of rank 1 at most: no adapter is lower")
        if self.rank >= least:
            raise PassError(
                f"rank={self.rank} is not low for '{name}', which is {variable.type}: give less than {least}, or leave "
                "it out of match"
            )
        return adapted

    def _kept(self, program: Program, trained: set[str], adapted: set[str]) -> set[str]:
        """The weights that are trained as before."""
        kept = trained_matching(program, self.train, trained)
        both = sorted(kept & adapted)
        if both:
            raise PassError(f"'{both[0]}' matches both match and train: it gets an adapter, or is trained as before")
        return kept

    def _planned(self, program: Program, found: TrainingAnatomy, adapted: Sequence[Adapted]) -> list[Repeat]:
        """How the adapters of each weight are to be trained; PassError where its update cannot be repeated."""
        refuse_second_look(found, [a.info for a in adapted])
        removal = Removal(found.graph, found.parts, found.weights)
        for a in adapted:
            taken = next((name for name in _states(a) if name in program.state), None)
            if taken is not None:
                raise PassError(f"a state is called '{taken}' already")
        try:
            return [plan_repeat(removal, a.info, a.own) for a in adapted]
        except PassError as refusal:
            raise PassError(f"{refusal.message}. {ANOTHER_OPTIMIZER}") from None

    def _put(
        self, program: Program, found: TrainingAnatomy, adapted: Sequence[Adapted], repeats: Sequence[Repeat]
    ) -> None:
        """Adapters in forward, backward and update."""
        fx = Effects(found.graph)
        new: list[NewWeight] = []
        for number, (a, repeat) in enumerate(zip(adapted, repeats, strict=True)):
            dtype = program.state[a.info.name].dtype
            types = {
                lora_a_of(a.info.name): TensorType(dtype, (self.rank, a.inputs)),
                lora_b_of(a.info.name): TensorType(dtype, (a.outputs, self.rank)),
            }
            begin, zero = types.values()
            values = self._first(begin, number), ZeroData(zero.nbytes)
            states = [found.graph.state(name, type_) for name, type_ in types.items()]
            gradients = put_adapter(fx, a, states, self.alpha)
            for (name, type_), value, gradient in zip(types.items(), values, gradients, strict=True):
                new.append(NewWeight(repeat, name, TensorValue(type_, value), gradient))
        repeat_updates(program, new)

    def _first(self, type_: TensorType, number: int) -> Data:
        """The first value of matrix A of adapter ``number``."""
        import numpy as np

        random = np.random.default_rng([self.seed, number])
        rank, inputs = type_.shape
        if self.init == GAUSSIAN:
            drawn = random.normal(0, 1 / rank, type_.shape)
        else:
            drawn = random.uniform(-1 / sqrt(inputs), 1 / sqrt(inputs), type_.shape)
        if type_.dtype in (DType.FLOAT16, DType.BFLOAT16):
            return rounded(*from_numpy(drawn), type_.dtype)
        return from_numpy(drawn.astype(type_.dtype.value))[1]


def _states(adapted: Adapted) -> tuple[str, str]:
    """The names of the two matrices of an adapter."""
    return lora_a_of(adapted.info.name), lora_b_of(adapted.info.name)


def _slot_bytes(program: Program) -> int:
    return sum(variable.nbytes for variable in program.state.values() if variable.role == "slot")
