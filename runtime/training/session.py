"""A program in training: its state and where in the cycle it stands."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from html import escape
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn, SupportsIndex

from ...ir.analysis.training.trains import check_trains
from ...ir.core.errors import RuntimeFailure
from ...ir.core.graph import Graph
from ...ir.core.legalizing import legalized
from ...ir.core.names import LOCAL, LOSS, MONITORED_CYCLES
from ...ir.core.program import Program
from ...ir.core.types import TensorType
from ...ir.core.which_weights import Weights
from ...ir.core.wording import agreed, counted
from ...ir.rewrite.evaluation import adapters_of, check_weights, values_of
from ...ir.rewrite.monitors import measured_states
from ..data.data_position import NOTE, DataPosition, EndOfEpoch
from ..data.inputs import to_tensors
from ..differentiation.capture import program_of
from ..engine import draws
from ..engine.engine import Engine, flat_outputs
from ..engine.exchange import Exchange
from ..engine.live import live_cell, tell_of_sharing
from ..engine.ranks import Ranks
from ..engine.refusals import lacks_kernels
from ..lowering.idle import measured_every
from ..lowering.lower import print_lowered
from ..state.adapter_file import read_adapters, write_adapters
from ..state.checkpoint import write_state
from ..state.finite_state import FiniteState
from ..state.state_file import read_saved, sums_over_ranks, write_saved
from ..state.update import update_network
from ..state.whole_state import whole_state
from .arguments import LARGEST_SEED, names_of_states, whole_number
from .bar import Bar
from .callback import Callback, Evaluate
from .cell_result import CellResult
from .fit import FitOptions, fit
from .history import History
from .line_search import LineSearch
from .monitors import Readings, read_monitors
from .plan import Turn, plan_turns
from .result import StepResult
from .resuming import check_draws
from .skipped import check_skipped

if TYPE_CHECKING:
    from ..evaluation.prediction import Predictions

log = logging.getLogger("boost_compile")


class Session:
    """Runs a program on ``device`` ("CPU", "GPU" or "Ascend", in any case), from the state it was loaded with.

    ``program`` is a :class:`Program`, the path of one, or a live training cell with ``inputs``, one micro-batch of
    arrays or Tensors (see :func:`capture`).

    A session of a captured program, or of a program compiled from one, trains the Parameters of the live Cell in place:
    weights, statistics, slots and hyperparameters, from the values that they have now. Networks, ``Model`` and
    ``save_checkpoint`` see each step at once. Several sessions on one Cell train the same Parameters. ``share=False``
    gives the session copies of its own, from the values at the time of capture; :meth:`update` takes them back.
    Primitives of a captured program that the device has no kernel for are replaced, as the pass ``legalize`` does.

    In a process that msrun started (or in which MindSpore's communication was initialised) the session is one rank of
    the job, and every rank must do the same with its own. A program with collectives, from data-parallel, waits for the
    others in each cycle. Alone, such a program runs without them. ``check_replicas=K`` calls :meth:`check_replicas`
    after every K-th cycle.

    The program is not changed, and sessions share nothing else. One exception is a session made ``beside`` another one
    whose program has the same state: both then change the same state, and graphs that both programs hold are compiled
    once. ``seed`` makes random primitives (Dropout) repeatable from one session to the next. Without it they keep the
    seeds of the file, where zero means a different run each time.
    """

    def __init__(
        self,
        program: Program | str | os.PathLike[str] | Any,
        device: str = "CPU",
        seed: int | None = None,
        check_replicas: int | None = None,
        *,
        inputs: Sequence[Any] = (),
        share: bool = True,
        beside: Session | None = None,
    ):
        if check_replicas is not None:
            whole_number(check_replicas, "cycles between two checks of replicas")
        if seed is not None:
            seed = whole_number(seed, "seed", 0, LARGEST_SEED)
        program = program_of(program, inputs)
        if program.live is not None and lacks_kernels(program, device):
            program = legalized(program, device.lower())
        self.program = program
        schedule = program.schedule
        self._schedules = [schedule.variant(k) for k in range(schedule.num_variants)]
        self._plans = [plan_turns(program, variant) for variant in self._schedules]
        live = live_cell(program) if share and beside is None else None
        self._engine: Engine = Engine(program, device, seed, live, None if beside is None else beside._engine)
        if live is not None:
            tell_of_sharing(live, program, self, self._engine.given.values())
        self._exchange = Exchange(self._engine.ranks)
        self._check_every = check_replicas
        self._search = None if schedule.search is None else LineSearch(self._engine, schedule.search)
        self._weights: Weights = "trained"
        self._predicting: dict[str, Predictions] = {}
        self._trains = False
        """Whether that has been found out; it takes a walk through the graphs."""
        self._position = 0
        self._cycle = 0
        self._counted = 0
        """The cycles that the program counts to measure every so-many-th."""
        self.data_position: DataPosition | None = None
        """Where in the data ``fit`` stands, or stood when the loaded state was saved; None where no fit is the cause of
        the state. Saved with it."""
        self._fits = False
        """Whether ``fit`` is running."""
        self._unread: StepResult | None = None
        self.finite_state = FiniteState(self._engine, program)
        """Finds state that ``fit`` has spoiled."""
        self._resume()

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise RuntimeFailure(
            "sessions can neither be copied nor pickled: MindSpore holds what they run.",
            python="bc.Session(session.program) makes another one, session.state() copies the state, and "
            "session.save(path) writes it.",
        )

    def __repr__(self) -> str:
        return f"{self._stand()}\n  {self.program!r}"

    def _repr_html_(self) -> str:
        return f"<div>{escape(self._stand())}</div>{self.program._repr_html_() or ''}"

    def _stand(self) -> str:
        rank = f", rank {self.ranks.rank} of {self.ranks.size}" if self.ranks.size > 1 else ""
        done = f"{counted(self._cycle, 'window')} done"
        if self._position:
            done += f", {self._position} of {counted(self.cycle_length, 'micro-batch')} of the next"
        given = len(self._engine.given)
        live = f"; trains a live network, {counted(given, 'Parameter')} in place" if given else ""
        return f"Session on {self._engine.device}{rank}: {done}{live}"

    @property
    def ranks(self) -> Ranks:
        """The number of this session's rank, and how many ranks there are."""
        return self._engine.ranks

    @property
    def position(self) -> int:
        """The number of micro-batches of the running cycle that have been consumed."""
        return self._position

    @property
    def cycle_length(self) -> int:
        """The number of micro-batches that one cycle consumes."""
        return len(self._plans[0])

    @property
    def can_flush(self) -> bool:
        """Whether a cycle may end before it has all its micro-batches; a self-contained MindIR has no graph for it."""
        return self._schedules[0].flush is not None or self.cycle_length == 1

    @property
    def variant(self) -> int:
        """The variant of its graphs that the running cycle uses; 0 where the schedule has no choice."""
        choice = self.program.schedule.choice
        return 0 if choice is None else choice.of_cycle(self._cycle)

    @property
    def _turns(self) -> list[Turn]:
        return self._plans[self.variant]

    @property
    def consumer(self) -> Graph:
        """The graph that takes the next micro-batch; all that take one take the same inputs."""
        return self._engine.graphs[self._turns[self._position].consumer]

    # -- running ---------------------------------------------------------------------------------------------

    def step(self, *inputs: Any) -> StepResult:
        """Consumes one micro-batch: one numpy array or Tensor for each input, in the order of the file.

        Returns without waiting for the device; reading a value of the result waits. Integers of another width are taken
        where the values fit; any other difference in number, shape or dtype is a :class:`RuntimeFailure`. A program
        that has no optimizer, such as a forward graph, is an :class:`.AnatomyError`: nothing would be trained.
        """
        self._refuse_within_fit("step")
        return self.advance(inputs)

    def advance(self, inputs: Sequence[Any]) -> StepResult:
        """As :meth:`step`, from within ``fit``."""
        self.check_trains()
        return self._advance(to_tensors(self.consumer, inputs))

    def _refuse_within_fit(self, method: str) -> None:
        if self._fits:
            raise RuntimeFailure(
                f"{method} was called within fit, by a callback or an evaluation: fit would lose count of what it has "
                f"trained on. They may read the state, save it, evaluate and predict;",
                python=f"session.load({{name: value}}, strict=False) sets single states. Call {method} when fit has "
                "returned.",
                command=f"a function of boost-run --eval cannot {method}.",
            )

    def check_trains(self) -> None:
        """:class:`.AnatomyError` for a program that has no optimizer; it says how to make a training program of it."""
        if not self._trains:
            check_trains(self.program)
            self._trains = True

    def flush(self) -> StepResult | None:
        """Ends an incomplete cycle with an update over the micro-batches it has; None when nothing is pending."""
        self._refuse_within_fit("flush")
        return self.end_cycle()

    def end_cycle(self) -> StepResult | None:
        """As :meth:`flush`, from within ``fit``."""
        if self._position == 0:
            return None
        name = self._schedules[self.variant].flush
        if name is None:
            raise RuntimeFailure(
                f"{self._position} of {counted(self.cycle_length, 'micro-batch')} "
                f"{agreed(self._position, 'is', 'are')} pending, and the program has no graph that ends a window "
                f"early. Feed {self.cycle_length - self._position} more."
            )
        results = self._engine.run(name, (), self._measures)
        outputs = dict(flat_outputs(self._engine.graphs[name], results))
        if self._search is not None:
            outputs.update(self._search.run())
        self._position = 0
        self._count_cycle()
        self.data_position = None
        return self._ended(StepResult(name, outputs, ended_cycle=True))

    def fit(
        self,
        data: Any,
        epochs: int = 1,
        batch_size: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        callbacks: Sequence[Callback] = (),
        evaluate: Evaluate | None = None,
        progress: bool | Bar | None = None,
        allow_nonfinite: bool = False,
        resume: bool = False,
        shard: bool = True,
        end_of_epoch: EndOfEpoch = "carry",
    ) -> History:
        """Trains on ``data``: arrays, an ``.npz`` file or a ``mindspore.dataset``. See :func:`.fit.fit`."""
        options = FitOptions(
            epochs=epochs,
            batch_size=batch_size,
            shuffle=shuffle,
            seed=seed,
            callbacks=callbacks,
            evaluate=evaluate,
            progress=progress,
            allow_nonfinite=allow_nonfinite,
            resume=resume,
            shard=shard,
            end_of_epoch=end_of_epoch,
        )
        self._refuse_within_fit("fit")
        self._fits = True
        try:
            return fit(self, data, options)
        finally:
            self._fits = False

    @cached_property
    def cell(self) -> Any:
        """The program as an ``nn.Cell``, for ``mindspore.train.Model(session.cell).train(…)`` without dataset sinking.

        A call is one micro-batch. It returns the loss; for a program with a loss scale or an overflow check ``(loss,
        overflow, scale)`` in every step, as ``nn.TrainOneStepWithLossScaleCell`` does (see :class:`.CellResult`). Its
        parameters are the session's state, by the names of the file. A cycle that is pending when ``Model.train`` ends
        goes on with the next call; a warning says so, and :meth:`flush` ends it.
        """
        from ..engine.cells import ProgramCell

        self.check_trains()
        results = CellResult(self.program, self._engine, self._turns[self._position].consumer)

        def step(inputs: tuple[Any, ...]) -> Any:
            return results.of(self.step(*inputs).raw)

        return ProgramCell(self._engine.parameters.values(), step, self._resume, self._tell_of_pending)

    def _tell_of_pending(self) -> None:
        if self._position:
            log.warning(
                "the training ended in the middle of a window: %d of %d micro-batches are pending, and the weights are "
                "not updated from them. The next call goes on there; session.flush() updates from what is there",
                self._position,
                self.cycle_length,
            )

    def predict(self, *inputs: Any) -> Any:
        """Runs the network with the present weights. Returns a numpy array, or a tuple of them where the network has
        several outputs (heads), in the order in which the graph computes them.

        Inputs are those of the network, in the order of the file, without labels. BatchNorm uses its statistics,
        dropout does nothing, no state changes, and the number of samples may differ from training. The result is the
        value that the loss is taken of; :meth:`network` takes another node. bfloat16 comes as float32.
        """
        arrays = self.run_network(inputs)
        return arrays[0] if len(arrays) == 1 else arrays

    def run_network(self, inputs: Sequence[Any], result: str | None = None) -> tuple[Any, ...]:
        """The outputs of the evaluation network as numpy arrays, or the value of its node ``result``."""
        return self._predictions.arrays(inputs, result)

    def evaluate(
        self, data: Any, metrics: str | Iterable[str] = (), *, batch_size: int | None = None, label: str | None = None
    ) -> dict[str, float]:
        """Measures the network on ``data`` by MindSpore's metrics. See :func:`.evaluation.evaluate.evaluate`."""
        from ..evaluation.evaluate import evaluate

        return evaluate(self, data, metrics, batch_size=batch_size, label=label)

    def network(self, result: str | None = None) -> Any:
        """The evaluation network as an ``nn.Cell`` over the session's Parameters: for ``Model(session.network(), loss,
        metrics=…).eval(…)``, or as part of another Cell. In ``mindspore.boost`` it is ``network_auto_process_eval``.
        ``result`` names the node whose value it returns, instead of the value that the loss is taken of.
        """
        return self._predictions.of(result).cell

    @property
    def weights(self) -> Weights:
        """The weights that :meth:`predict`, :meth:`evaluate`, :meth:`network`, :meth:`export_onnx`, :meth:`update` and
        :meth:`save_weights` use: those that are ``"trained"``, their ``"average"``, of a program with
        ``weight-average``, or ``"merged"``, those with the adapters of ``lora`` added. To be set; a program that has
        none of them is a :class:`.PassError`. Training and :meth:`save` are the same with all.

        Adapters are merged in what is written: predictions run the layers with the adapters beside them, which is the
        same up to rounding.
        """
        return self._weights

    @weights.setter
    def weights(self, which: Weights) -> None:
        check_weights(self.program, which)
        self._weights = which

    @property
    def _predictions(self) -> Predictions:
        from ..evaluation.prediction import Predictions

        if self._weights not in self._predicting:
            averaged = self._weights == "average"
            self._predicting[self._weights] = Predictions(self._engine, self.program, averaged=averaged)
        return self._predicting[self._weights]

    def _values(self) -> dict[str, Any]:
        """The state that all ranks hold."""
        return self.state(name for name in self._changing if self._engine.context.is_common(name))

    def _advance(self, tensors: tuple[Any, ...]) -> StepResult:
        turn = self._turns[self._position]
        outputs: dict[str, Any] = {}
        for name in turn.graphs:
            results = self._engine.run(name, tensors if name == turn.consumer else (), self._measures)
            named = dict(flat_outputs(self._engine.graphs[name], results))
            if LOSS in outputs:
                named.pop(LOSS, None)
            outputs.update(named)
        if self._search is not None:
            self._search.keep(tensors, outputs)
        self._position = (self._position + 1) % self.cycle_length
        if self._search is not None and self._position == 0:
            outputs.update(self._search.run())
        if self._position == 0:
            self._count_cycle()
        self.data_position = None
        result = StepResult(turn.consumer, outputs, ended_cycle=self._position == 0)
        return self._ended(result) if result.ended_cycle else result

    @property
    def _measures(self) -> bool:
        """Whether the running cycle is one that a program with ``monitor`` measures."""
        return (self._counted + 1) % measured_every(self.program) == 0

    def _count_cycle(self) -> None:
        self._cycle += 1
        self._counted += 1

    def _ended(self, result: StepResult) -> StepResult:
        """Looks at the cycle before the one that has just been started on the device, so as not to wait for it."""
        if self._check_every is not None and self._cycle % self._check_every == 0:
            self.check_replicas()
        previous, self._unread = self._unread, result
        if previous is not None:
            self.check_skipped(previous)
        return result

    def check_skipped(self, result: StepResult) -> None:
        """RuntimeFailure if the cycle that ``result`` ended was skipped, and too many in a row before it.

        ``step`` asks this of each cycle when the next one ends, so that it need not wait for the device.
        """
        check_skipped(self.program.schedule, result)

    # -- state -----------------------------------------------------------------------------------------------

    def state(self, names: Iterable[str] | None = None) -> dict[str, Any]:
        """Returns a copy of every state variable, or of those that are named: a numpy array by each name of the file,
        bfloat16 as float32 (exact). Fixed parts of the program are left out. In a job of a program by shard-optimizer
        all ranks must call it, with the same names, since each has the slots of other weights.
        """
        asked = self._changing if names is None else names_of_states(names, self._engine.types)
        return whole_state(self._engine, self._exchange, asked)

    @cached_property
    def _changing(self) -> dict[str, TensorType]:
        """The types of all state but what is a fixed part of the program."""
        return {n: t for n, t in self._engine.types.items() if self.program.state[n].role != "fixed"}

    def monitors(self) -> Readings:
        """What a program with ``monitor`` has measured in the last cycle that it measures, by weight. Waits for the
        device. A program without monitors is a :class:`.PassError`. In a job gradients are those that all ranks
        exchanged, but for each rank's own micro-batches (see the pass).
        """
        return read_monitors(self.program, self.state)

    def load(self, source: Mapping[str, Any] | str | os.PathLike[str], strict: bool = True) -> list[str]:
        """Sets state from a file that :meth:`save` wrote, from another ``.safetensors``, ``.ckpt`` or ``.npz`` file, or
        from arrays or Tensors by name. Returns the names that were set.

        Shapes and dtypes must be those of the state (float32 for bfloat16). With ``strict`` the names must be exactly
        those of the state, but that monitors, which a state of the same training without them lacks, begin anew with
        a warning; without, those that both sides have are set. An error changes nothing; a damaged file is a
        :class:`DamagedState`. A state saved in the middle of a cycle resumes there. ``load_state`` is another name of
        this method.
        """
        if strict or not isinstance(source, Mapping) or self._counters & source.keys():
            self._refuse_within_fit("load")
        starts = {name: self.program.state[name].initial for name in measured_states(self.program)}
        saved = read_saved(source, self._changing, self._exchange, strict, starts)
        notes, own = saved.notes, self._engine.draws
        data_position = DataPosition.from_text(notes[NOTE], saved.origin) if NOTE in notes else None
        drawn = own.check_text(notes[draws.NOTE], saved.origin) if draws.NOTE in notes else None
        position = self._position_from(saved.values, saved.kept)
        scaled = sums_over_ranks(saved, self._engine.context) if isinstance(source, (str, os.PathLike)) else {}
        self._engine.memory.write(saved.values | scaled)
        self.finite_state.came_from(saved.origin, saved.values)
        if not self._fits:
            self._position = position
            self.data_position = data_position
        own.resume(drawn)
        saved.warn_if_foreign()
        self._resume_cycles(saved.values)
        return list(saved.values)

    load_state = load

    def update(self, network: Any) -> list[str]:
        """Copies the state into the Parameters of ``network``, any Cell, by their names, and returns the names.

        Parameters that the session trains in place have it already. RuntimeFailure where no name agrees, or a shape or
        dtype differs; nothing is changed then. A warning names weights that only one side has: with them ``network``
        computes something else than the trained network.
        """
        instead: dict[str, Any] = {}
        gone: set[str] = set()
        if self._weights != "trained":
            state = self.state()
            made = values_of(self.program, self._weights, state)
            gone = state.keys() - made.keys()
            instead = {name: value for name, value in made.items() if value is not state[name]}
        return update_network(network, self.program, self._engine, self._exchange, instead, gone)

    def check_replicas(self) -> None:
        """Compares a hash of each weight between the ranks. RuntimeFailure, on all ranks, if a weight does not have the
        same bits on all of them: it names the first such weight and the ranks. All ranks must call it.
        """
        compared = [n for n, v in self.program.state.items() if v.role == "weight" and not v.info.get(LOCAL)]
        self._exchange.check_equal({name: self._engine.memory.read(name) for name in compared})

    def save(self, path: str | os.PathLike[str], sync: str = "none") -> None:
        """Writes the state, and the place of ``fit`` in the data, to a ``.safetensors`` or ``.ckpt`` file; never leaves
        half a file behind.

        A ``.ckpt`` loads into a native MindSpore network with ``load_param_into_net``. In a job of several ranks all of
        them must call it, and the first one writes. ``sync=average`` writes BatchNorm statistics averaged over the
        ranks, ``none`` those of the first. The sums of a running cycle are averaged in any case, so any number of ranks
        that load the file have the same sum together. Values that differ between ranks are written beside that, and as
        many ranks as before load each its own.
        """
        if sync not in ("none", "average"):
            raise RuntimeFailure(f"no way to write BatchNorm statistics is called '{sync}': give 'none' or 'average'.")
        notes = {} if self.data_position is None else {NOTE: self.data_position.to_text()}
        if self._engine.draws.runs:
            notes[draws.NOTE] = self._engine.draws.to_text()
        kept = [] if self._search is None else self._search.kept()
        mean = self._differing(sync == "average")
        write_saved(path, self._engine, self._exchange, self._changing, mean, kept, notes)

    def save_weights(self, path: str | os.PathLike[str]) -> None:
        """Writes weights and statistics alone to a ``.safetensors`` or ``.ckpt`` file, for a network that predicts;
        the weights are those that :attr:`weights` says. In a job of several ranks the first one writes.
        """
        if self.ranks.rank != 0:
            return
        state = self.program.state
        values = values_of(self.program, self._weights, self._values())
        values = {name: a for name, a in values.items() if state[name].role in ("weight", "statistic")}
        write_state(path, {name: self._engine.memory.tensor(name, array) for name, array in values.items()}, values)

    def save_adapter(self, path: str | os.PathLike[str]) -> None:
        """Writes the adapters of a program with ``lora`` alone, and weights that it trains beside them, to a
        ``.safetensors`` file as PEFT does, and ``adapter_config.json`` beside it. A program without adapters is a
        :class:`.PassError`. In a job of several ranks the first one writes.
        """
        adapters_of(self.program)
        if self.ranks.rank == 0:
            write_adapters(path, self.program, self._values())

    def load_adapter(self, path: str | os.PathLike[str]) -> list[str]:
        """Sets the adapters from a file that :meth:`save_adapter` or PEFT wrote, and returns the names that were set.
        RuntimeFailure where they are those of another program; nothing is changed then."""
        return self.load(read_adapters(path, self.program), strict=False)

    def ranks_agree(self, *asked: bool) -> list[bool]:
        """Whether any rank asks for each of these; all ranks must call it, with as many."""
        return self._exchange.agree(*asked)

    def check_draws(self) -> None:
        """RuntimeFailure where this session draws random numbers from another seed than the one whose state it has
        loaded; a warning where nobody knows where the generators stood."""
        check_draws(self._engine.draws, self._engine.unrepeatable)

    def export_onnx(
        self, path: str | os.PathLike[str], result: str | None = None, batch: int | Literal["any"] | None = None
    ) -> str:
        """Writes the network that :meth:`predict` runs, with its present weights, as standard ONNX, and returns a
        description of the file. ``result`` is the node where it ends, instead of where the loss begins. ``batch`` is
        the number of samples that it takes, if not as many as in training; a network that came from ONNX with an open
        batch keeps that.

        An :class:`Error` lists all primitives that have no standard operator, or do not allow the batch. In a job of
        several ranks the first one writes.
        """
        if self.ranks.rank != 0:
            return "the first rank exports"
        from ...ir.formats.onnx.standard import export_onnx
        from ...ir.rewrite.evaluation import network_of

        given = self._values()
        network = network_of(self.program, self._weights, result, given, "the session", batch, runs=False)
        return f"exported {export_onnx(Path(path), network, version('boost-compile'))}"

    def lowered(self) -> str:
        """The graphs as MindSpore got them, as text, each under the list of its lowerings."""
        return print_lowered(self._engine.context)

    def _differing(self, statistics: bool) -> list[str]:
        """The state of which ranks hold parts of their own: what a cycle has accumulated and, if asked for, BatchNorm
        statistics."""
        if self.ranks.size == 1:
            return []
        parts = ({"accumulator", "counter"} if self._position else set()) | ({"statistic"} if statistics else set())
        return [name for name, v in self.program.state.items() if v.role in parts and v.dtype.is_float]

    def _resume(self) -> None:
        """The position as the counting state says, which a checkpoint may have set."""
        count, choice = self.program.schedule.count, self.program.schedule.choice
        if count is not None:
            self._position = self._position_from({count: self._engine.memory.read(count)})
        counters = [MONITORED_CYCLES, *(() if choice is None else (choice.state,))]
        self._resume_cycles({name: self._engine.memory.read(name) for name in counters if name in self._engine.types})

    @cached_property
    def _counters(self) -> set[str]:
        """The states that say where in a cycle, and in which cycle, the session stands."""
        count, choice = self.program.schedule.count, self.program.schedule.choice
        return {MONITORED_CYCLES, *([] if count is None else [count]), *([] if choice is None else [choice.state])}

    def _resume_cycles(self, values: Mapping[str, Any]) -> None:
        choice = self.program.schedule.choice
        if choice is not None and choice.state in values:
            self._cycle = int(values[choice.state].item())
        if MONITORED_CYCLES in values:
            self._counted = int(values[MONITORED_CYCLES].item())

    def _position_from(self, values: Mapping[str, Any], kept: Sequence[Sequence[Any]] = ()) -> int:
        count = self.program.schedule.count
        if count is None:
            return 0 if len(values) == len(self._changing) else self._position
        if count not in values:
            return self._position
        position = int(values[count].item())
        if not 0 <= position < self.cycle_length:
            raise RuntimeFailure(
                f"state '{count}' says that {counted(position, 'micro-batch')} {agreed(position, 'is', 'are')} "
                f"pending, but a window has {self.cycle_length}: the state comes from a program with another window. "
                "Load it there, or save it at the end of a window."
            )
        if self._search is not None:
            self._search.resume(position, kept)
        return position
