"""The base of passes: typed options, a promise, and one method that rewrites a program."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from ...ir.core.errors import OptionError
from ...ir.core.report import PassResult
from .options import declared_options, option

if TYPE_CHECKING:
    from typing_extensions import Self, dataclass_transform

    from ...ir.core.graph import Node
    from ...ir.core.program import Program
else:

    def dataclass_transform(**_: Any) -> Any:
        return lambda cls: cls


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(option,))
class Pass:
    """Base of all passes. A subclass is a frozen dataclass whose fields are its options::

        class Scale(Pass):
            '''Multiplies every gradient by a factor.'''

            name = "scale"
            factor: float = option(1.0, help="the factor", minimum=0)

            def run(self, program: Program) -> PassResult:
                result = self.result()
                ...
                return result

    The first line of the docstring is its summary. An option that needs more than a type, choices and bounds is checked
    in ``__post_init__`` (call ``super().__post_init__()`` first, raise OptionError).
    """

    name: ClassVar[str] = ""
    """As in pipelines: lower case, words joined by hyphens."""
    preserves: ClassVar[bool] = True
    """Whether training gives the same weights up to rounding."""
    at_stage: ClassVar[str | None] = None
    """One of ``STAGES`` (ir/analysis/training/gradient_path.py) if the pass works on gradients between backward and
    update: the manager orders those."""
    early: ClassVar[bool] = False
    """True for what must run before all other passes."""
    closing: ClassVar[bool] = False
    """True for the early pass that works on the network that all other early ones leave."""
    late: ClassVar[bool] = False
    """True for what works on what all others have made, but for clean-ups after it."""
    redone: ClassVar[bool] = False
    """True for what must be the last to touch the program: a later compilation takes it out (:meth:`undo`) and runs it
    again after its own passes."""
    serves: ClassVar[tuple[str, ...]] = ()
    """Names of passes whose work this one does too, so that none brings them along."""
    may_match_nothing: ClassVar[bool] = False
    """True for clean-ups, which need nothing to do; any other pass fails when it matches nothing."""
    optional: ClassVar[bool] = False
    """Whether this one only warns when it matches nothing: set for a single pass by :meth:`as_optional`."""

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        doc = cls.__dict__.get("__doc__") or ""
        dataclasses.dataclass(frozen=True, kw_only=True)(cls)
        cls.__doc__ = doc  # not the signature that dataclass would put there

    def __post_init__(self) -> None:
        for name, declared in declared_options(type(self)).items():
            try:
                object.__setattr__(self, name, declared.check(getattr(self, name)))
            except OptionError as error:
                raise OptionError(f"pass '{self.name}': {error}") from None

    def as_optional(self) -> Self:
        """The same pass, ``name?`` in a pipeline: where it matches nothing, that is a warning and no error."""
        twin = copy.copy(self)
        object.__setattr__(twin, "optional", True)
        return twin

    @classmethod
    def summary(cls) -> str:
        """The first line of the docstring."""
        return (cls.__doc__ or "").strip().partition("\n")[0]

    def options(self) -> dict[str, Any]:
        """The value of every option, defaults included."""
        return {name: getattr(self, name) for name in declared_options(type(self))}

    def result(self) -> PassResult:
        """An empty result for this pass, to be filled in by :meth:`run`."""
        return PassResult(self.name, self.options(), preserves=self.preserves)

    def stages(self) -> Mapping[str, Mapping[str, Any]]:
        """Passes by name, with their options, that run instead of this one, which is their common name."""
        return {}

    def needs(self, program: Program) -> Sequence[str]:
        """Names of passes without which this one does not work on ``program``: run too unless they are asked for."""
        return ()

    @classmethod
    def needed_for(cls, program: Program, target: str) -> list[Node]:
        """The nodes for which ``program`` needs this pass to run on ``target``, though nobody asked for it. The manager
        asks the pass that ``registry.LEGALIZATION`` names."""
        return []

    @classmethod
    def check_target(cls, program: Program, target: str) -> None:
        """PassError if ``program`` can never run on ``target``, not even after this pass. Asked of the same pass."""

    def settled(self, program: Program) -> Self:
        """The pass to run on ``program``, and to be recorded: this one, or one with what it found out instead of what
        it was told to find out."""
        return self

    def undo(self, program: Program) -> None:
        """Takes what :meth:`run` with the same options put into ``program`` out again, where the pass is ``redone``."""

    def run(self, program: Program) -> PassResult:
        """Rewrites ``program`` in place (the manager hands over a private copy) and says what was done.

        Raise PassError for a program that the pass cannot handle, before anything is changed; NotApplicable where the
        network has no place for the pass at all, which an optional pass may meet.
        """
        raise TypeError(f"pass '{self.name}' has no run method")
