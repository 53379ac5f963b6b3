"""boost-compile: a training graph in, a rewritten training program out."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import click

from . import cli
from .command import ALL, OptionalValueCommand, Pipeline, argument, option, parameters_of, place
from .listings import list_losses, list_optimizers, list_passes
from .outputs import check_output

if TYPE_CHECKING:
    from ..ir.core.program import Program
    from ..passes.framework.base import Pass
    from ..passes.framework.instrumentation import Instrumentation
    from .compile_report import Outcome
    from .proof.run import Proved
    from .verification.report import Verification

DEFAULT_PIPELINE = "common-subexpression-elimination,effect-chain-minimization,dead-code-elimination"
"""Clean-up that preserves training bit for bit: what to do when nothing was asked for."""


class CompileCommand(OptionalValueCommand):
    optional_values = ("--print-ir-before", "--print-ir-after", "--print-ir-diff")


@dataclass(frozen=True)
class Asked:
    """The pipeline of a job. ``asked``: whether any pass was asked for (else it is the default pipeline). ``target``
    and ``notes`` may come from --config."""

    passes: list[Pass]
    asked: bool
    target: str | None
    notes: list[str]


@dataclass(frozen=True, kw_only=True)
class Job:
    """The request, with the checks that need no file."""

    input: str | None = argument(required=False)
    output: str | None = place("Where to write [INPUT's name, here]; '-': text to stdout.", "-o", metavar="OUT")
    optimizer: str | None = option("Differentiate INPUT for it: 'adam{lr=0.001}'.", metavar="TEXT")
    loss: str | None = option("The loss, unless the graph returns it.", metavar="TEXT")
    head: str | None = option("The result to train, of a graph with several.", metavar="NAME")
    train: tuple[str, ...] = option("Train these weights only.", metavar="GLOB")
    freeze: tuple[str, ...] = option("Do not train these.", metavar="GLOB")
    training_mode: bool = option("BatchNorms learn their statistics.")
    passes: str | None = option(
        "Pipeline, such as 'gradient-accumulation{steps=4}'.", "-p", metavar="TEXT", type=Pipeline()
    )
    level: str | None = option(
        "What this boost_level of MindSpore switches on.", metavar="O0|O1|O2", type=click.Choice(["O0", "O1", "O2"])
    )
    config: str | None = place("JSON or TOML: a pipeline, or for mindspore.boost.")
    accumulate: int | None = option("Accumulate gradients over N micro-batches.", metavar="N")
    reduction: str | None = option(
        "How gradients join [as the loss does].",
        metavar="mean|sum|weighted",
        type=click.Choice(["mean", "sum", "weighted"]),
    )
    weight: str | None = option("Input, output or node that weighs it.", metavar="NAME")
    split: str | None = option(
        "How --accumulate splits the step [apply].", metavar="apply|fused", type=click.Choice(["apply", "fused"])
    )
    memory_budget: str | None = option("Accumulate, or recompute, to fit SIZE (8GB).", metavar="SIZE")
    batch: int | None = option("With --memory-budget: samples of a step.", metavar="N")
    loss_scale: str | None = option("Scale the loss: dynamically, or by the number S.", metavar="dynamic|S")
    check_overflow: bool = option("Skip updates whose gradients are not all finite.")
    clip_norm: float | None = option("Clip gradients to a global norm of X.", metavar="X")
    centralize: bool = option("Centralize gradients of dense and conv. weights.")
    data_parallel: bool = option("Exchange gradients, for boost-run --ranks.")
    emit: str | None = option(
        "What to write [by OUT's suffix].", metavar="FORM", type=click.Choice(["program", "mindir", "text"])
    )
    force: bool = option("Replace OUT though it is of another kind.")
    dimensions: Mapping[str, int] = cli.dimensions_option()
    target: str | None = option(
        "Where it will run [as in INPUT].", metavar="cpu|gpu|ascend", type=click.Choice(["cpu", "gpu", "ascend"])
    )
    allow_no_match: bool = option("Only warn of a pass that matches nothing.")
    verify_each: bool | None = option(
        "Verify after every pass, or not at all [after all passes].", "--verify-each/--no-verify-each", default=None
    )
    prove: bool = option("Prove that it trains as INPUT, for all data.")
    prove_each: bool = option("Prove it after every pass; stop at the first that is not proved.")
    verify: bool = option("Run it beside INPUT, and check what passes promise.")
    print_ir_before: tuple[str, ...] = option(
        "Print the program before each pass (PASS alone) to stderr.", metavar="[=PASS]"
    )
    print_ir_after: tuple[str, ...] = option(
        "Print the program after each pass (PASS alone) to stderr.", metavar="[=PASS]"
    )
    print_ir_diff: tuple[str, ...] = option(
        "Print what each pass changed: nodes, state, schedule (PASS alone) to stderr.", metavar="[=PASS]"
    )
    print_lowered: bool = option("Print what the runtime makes of OUT for its target to stderr.")
    annotations: bool = option("Scopes and origins in text [on].", "--annotations/--no-annotations", default=True)
    time_passes: bool = option("Print where the time went to stderr.")
    pass_statistics: bool = option("Print each pass's statistics to stderr.")
    opt_bisect_limit: int | None = option("Run the first N passes only.", metavar="N")
    help_passes_authors: bool = option("Show the options for who writes passes, and exit.")
    list_passes: bool = option("List all passes with their options, and exit.")
    list_losses: bool = option("List what --loss takes, with options, and exit.")
    list_optimizers: bool = option("List what --optimizer takes, with options, and exit.")
    dump_pipeline: bool = option("Print the effective pipeline with all options, and exit.")
    as_json: bool = option("One JSON document on stdout instead of the report.", "--json")
    quiet: bool = option("No report.", "-q")

    @property
    def silent(self) -> bool:
        """Whether nothing is said of the compilation but its result."""
        return self.as_json or self.quiet

    def differentiates(self) -> bool:
        """Whether the input is a forward graph that is to be made a training graph."""
        if self.optimizer is None and (self.loss or self.head or self.train or self.freeze or self.training_mode):
            raise click.UsageError(
                "--loss, --head, --train, --freeze and --training-mode need --optimizer, such as 'adam'"
            )
        return self.optimizer is not None

    def pipeline(self) -> Asked:
        """The passes; reads --config."""
        from ..passes.framework.manager import in_stages
        from ..passes.framework.pipeline import parse_pipeline

        shorthands = [*self._accumulation(), *self._around_the_optimizer()]
        given = in_stages([*parse_pipeline(",".join(shorthands)), *parse_pipeline(self.passes or "")])
        asked = self.passes is not None or bool(shorthands)
        if self.config is not None or self.level is not None:
            return self._configured(given, asked)
        return Asked(given if asked else parse_pipeline(DEFAULT_PIPELINE), asked, self.target, [])

    def _configured(self, given: list[Pass], asked: bool) -> Asked:
        """The passes of --config and --level, less those that the command line gives too, and then those."""
        from ..passes.configuration.configuration import read_configuration
        from ..passes.framework.manager import in_stages
        from ..passes.framework.pipeline import parse_pipeline, print_pipeline

        configuration = read_configuration(self.config, self.level)
        where = self.config or f"--level {self.level}"
        notes = [f"{where}: {note}" for note in configuration.notes]
        if configuration.target and self.target not in (None, configuration.target):
            notes.append(f"{where}: --target {self.target} replaces target '{configuration.target}'")
        kept = []
        for p in in_stages(configuration.passes or ()):
            same = [g for g in given if g.name == p.name and not p.may_match_nothing]  # clean-ups may come twice
            if not same:
                kept.append(p)
            elif p not in same:
                notes.append(f"{where}: the command line replaces '{print_pipeline([p], all_options=True)}'")
        asked = asked or configuration.passes is not None
        passes = [*kept, *given] if asked else parse_pipeline(DEFAULT_PIPELINE)
        return Asked(passes, asked, self.target or configuration.target, notes)

    def _accumulation(self) -> list[str]:
        if self.batch is not None and self.memory_budget is None:
            raise click.UsageError("--batch says for how many samples --memory-budget is: give both")
        if self.accumulate is None:
            for name in ("reduction", "weight", "split"):
                if getattr(self, name):
                    raise click.UsageError(f"--{name} says how to accumulate: give --accumulate N too")
            return []
        from ..passes.framework.options import print_value

        reduction = self.reduction or ("weighted" if self.weight else None)
        given = {"steps": self.accumulate, "reduction": reduction, "weight": self.weight, "split": self.split}
        options = ",".join(f"{name}={print_value(value)}" for name, value in given.items() if value is not None)
        return [f"gradient-accumulation{{{options}}}"]

    def _around_the_optimizer(self) -> list[str]:
        asked: list[str] = []
        if self.loss_scale == "dynamic":
            asked.append("loss-scale{mode=dynamic}")
        elif self.loss_scale is not None:
            try:
                asked.append(f"loss-scale{{mode=static,init={float(self.loss_scale)!r}}}")
            except ValueError:
                raise click.UsageError(f"--loss-scale takes 'dynamic' or a number, not '{self.loss_scale}'") from None
        if self.check_overflow:
            asked.append("overflow-check")
        if self.clip_norm is not None:
            asked.append(f"clip-gradients{{by=global-norm,limit={self.clip_norm!r}}}")
        if self.centralize:
            asked.append("gradient-centralization")
        if self.data_parallel:
            asked.append("data-parallel")
        return asked

    def instrumentation(self, source: Program) -> Instrumentation:
        from ..passes.framework.instrumentation import Instrumentation

        return Instrumentation(
            judge=partial(_prove_after, source) if self.prove_each else None,
            print_ir_before=_selection(self.print_ir_before),
            print_ir_after=_selection(self.print_ir_after),
            print_ir_diff=_selection(self.print_ir_diff),
            opt_bisect_limit=self.opt_bisect_limit,
            annotations=self.annotations,
        )

    def destination(self) -> tuple[str, str]:
        """(path or ``-``, what to emit), checked against each other."""
        from ..ir.formats.storage.suffixes import form_to_write, suffix_for

        by_suffix = None
        if self.output is not None:
            by_suffix = "text" if self.output == "-" else form_to_write(self.output)
        emit = self.emit or by_suffix or "program"
        if self.output is not None:
            if self.output == "-" and emit != "text":
                raise click.UsageError("'-o -' prints text: use it with --emit text, or name a file")
            if emit != by_suffix:
                raise click.UsageError(f"'{self.output}' is named like a {by_suffix} but --emit says {emit}")
            return self.output, emit
        given = self.input or "-"
        stem = "program" if given == "-" else Path(given).stem
        suffix = suffix_for(emit)
        if os.path.exists(stem + suffix) and os.path.samefile(stem + suffix, given):
            suffix = ".compiled" + suffix
        return stem + suffix, emit


@click.command("boost-compile", cls=CompileCommand, params=parameters_of(Job))
@click.version_option(package_name="boost-compile")
def command(**options: Any) -> None:
    """Rewrites the training graph in INPUT: a MindIR file, a program directory (.boost), or text (.ir, .txt, or - for
    stdin). Without a pass it only cleans up. Passes: those of --config or --level, then of the other options, then of
    --passes; the command line's count."""
    job = Job(**options)
    if job.help_passes_authors:
        return click.echo(command.help_for_authors())
    for listing in (list_passes, list_losses, list_optimizers):
        if getattr(job, listing.__name__):
            return listing(job.as_json)
    pipeline = job.pipeline()
    if not job.quiet:
        for note in pipeline.notes:
            click.echo(f"Note: {note}", err=True)
    if job.dump_pipeline:
        return _dump_pipeline(pipeline.passes)
    return _compile(job, pipeline)


def _selection(names: tuple[str, ...]) -> bool | tuple[str, ...]:
    return True if ALL in names else names or False


def _compile(job: Job, pipeline: Asked) -> None:
    """Reads, compiles, writes, checks what was written, and reports; each phase is timed."""
    from .compile_report import Outcome

    if job.input is None:
        raise click.UsageError("INPUT is missing: which MindIR file or program is to be compiled?")
    output, emit = job.destination()
    if output == "-" and job.as_json:
        raise click.UsageError("'-o -' and --json both want stdout: name a file")
    if output != "-":
        check_output(output, (job.input, job.config), force=job.force)
    cli.pause_collector()
    seconds: dict[str, float] = {}
    source = _source(job, job.input, pipeline.target, seconds)
    if job.memory_budget is not None:
        with _timed(seconds, "memory plan"):
            planned = _planned(job, source, pipeline.passes if pipeline.asked else [])
        pipeline = replace(pipeline, passes=planned, asked=True)
    with _timed(seconds, "passes, verification and dumps"):
        program = _compiled(job, source, pipeline)
    _warn(job, source, program, pipeline)
    if job.print_lowered:
        cli.print_lowered(program, program.target, annotations=job.annotations)
    with _timed(seconds, "write"):
        _write(program, output, emit, job.annotations)
    verification = proved = None
    if job.verify:
        with _timed(seconds, "verification"):
            verification = _verified(job, source, program, output)
    if job.prove:
        with _timed(seconds, "proof"):
            proved = _proved(source, program, job.input, output)
    outcome = Outcome(source, program, job.input, output, emit, pipeline.passes, pipeline.asked, seconds)
    _report(job, outcome, verification, proved)
    _conclude(job, output, verification, proved)


def _source(job: Job, path: str, target: str | None, seconds: dict[str, float]) -> Program:
    """The training program that INPUT is, or that is made of the forward program there."""
    with _timed(seconds, "read"):
        source = cli.read_program(path, job.dimensions)
        if target:
            source.target = target
    if job.differentiates():
        with _timed(seconds, "differentiation"):
            source = _differentiated(job, source)
    return source


def _compiled(job: Job, source: Program, pipeline: Asked) -> Program:
    import warnings

    from ..passes.framework.manager import NoMatchWarning, compile_program

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoMatchWarning)  # the report says it
        return compile_program(
            source,
            pipeline.passes,
            verify_each=job.verify_each,
            allow_no_match=job.allow_no_match,
            instrumentation=job.instrumentation(source),
            target=pipeline.target,
        )


def _warn(job: Job, source: Program, program: Program, pipeline: Asked) -> None:
    from .doctor.examination import certain_findings

    if job.silent:
        return
    if pipeline.target is None:
        _note_missing_kernels(program)
    for finding in certain_findings(source):
        click.echo(f"Warning: {cli.safe(str(finding))}", err=True)


def _report(job: Job, outcome: Outcome, verification: Verification | None, proved: Proved | None) -> None:
    from .compile_report import print_report, print_statistics, print_times, to_json

    if job.time_passes:
        print_times(outcome)
    if job.pass_statistics:
        print_statistics(outcome)
    if job.as_json:
        document = to_json(outcome)
        if verification is not None:
            document["verification"] = verification.to_json()
        if proved is not None:
            from .proof.run import to_json as proof_json

            document["proof"] = proof_json(proved)
        cli.print_json(document)
    elif not job.quiet:
        print_report(outcome)


def _note_missing_kernels(program: Program) -> None:
    """Says where the program cannot run, though nobody named that as its target."""
    from ..ir.core.errors import PassError
    from ..passes.legalize import Legalize

    try:
        Legalize.check_target(program, program.target)
    except PassError as error:
        click.echo(f"Note: {error} A session on {program.target} will refuse the program.", err=True)


def _planned(job: Job, program: Program, passes: list[Pass]) -> list[Pass]:
    """The passes, with those in front that make the wanted batch fit into the memory."""
    from ..passes.framework.pipeline import parse_pipeline
    from .budget import plan_memory

    if job.accumulate is not None:
        raise click.UsageError("--memory-budget chooses how often to accumulate: leave out --accumulate")
    assert job.memory_budget is not None
    plan = plan_memory(program, job.memory_budget, job.batch, passes)
    if not job.silent:
        click.echo(str(plan), err=True)
    return [*parse_pipeline(plan.pipeline), *passes] or parse_pipeline(DEFAULT_PIPELINE)


def _differentiated(job: Job, program: Program) -> Program:
    """The training program of a forward program."""
    from ..runtime.differentiation.differentiate import differentiate

    assert job.optimizer is not None
    made = differentiate(
        program, job.optimizer, job.loss, job.train, job.freeze, training_mode=job.training_mode, head=job.head
    )
    if not job.silent:
        report = made.reports[-1]
        click.echo(f"differentiate: {report.summary}", err=True)
        for line in cli.folded([f"{m.site}: {m.reason}" for m in report.misses]):
            click.echo(f"    {line}", err=True)
    return made


def _verified(job: Job, source: Program, program: Program, output: str) -> Verification:
    """The verification of what was compiled; its result is stored with a program directory."""
    from .verification.progress import progress
    from .verify import check_made_from, run

    assert job.input is not None
    check_made_from(source, program, output)
    if not job.silent:
        click.echo("Verifying: the program runs beside the original in MindSpore.", err=True)
    with nullcontext() if job.silent else progress("boost-compile") as shown:
        return run(source, program, job.input, output, store=True, progress=shown)


def _proved(source: Program, program: Program, path: str, output: str) -> Proved:
    from .prove import prove

    return prove(source, program, path, output, store=True)


def _prove_after(source: Program, p: Pass, program: Program) -> None:
    """Error after the first pass whose program is not proved."""
    from ..ir.core.errors import Error
    from .proof.run import alike, prove
    from .proof.table import failure

    found = prove(source, program)
    if not found.proved:
        first = failure(*alike(found.proof.failures)[0], found.terms, program)
        raise Error(f"after pass '{p.name}': {found.verdict()}\n  {first}")


def _conclude(job: Job, output: str, verification: Verification | None, proved: Proved | None) -> None:
    """Prints proof and verification; exit status 1 if one does not hold, 3 if no update was compared."""
    console = cli.console(stderr=job.silent or output == "-")
    if proved is not None and not (job.silent and proved.proved):
        from .proof.table import print_proof

        print_proof(proved, console)
    if verification is not None and not (job.silent and verification.verified):
        from .verification.table import print_verification

        print_verification(verification, console)
    if proved is not None and not proved.proved:
        raise click.exceptions.Exit(1)
    if verification is not None and not verification.verified:
        raise click.exceptions.Exit(verification.exit_status)


@contextmanager
def _timed(seconds: dict[str, float], phase: str) -> Iterator[None]:
    start = perf_counter()
    yield
    seconds[phase] = perf_counter() - start


def _write(program: Program, output: str, emit: str, annotations: bool) -> None:
    if emit != "text":
        from ..ir.formats.storage.save import save

        return save(program, output, force=True)  # what stands there was looked at before
    from ..ir.text import print_program

    return cli.write_text(print_program(program, annotations=annotations, resources=True), output)


def _dump_pipeline(passes: list[Pass]) -> None:
    from ..passes.framework.manager import canonical_order
    from ..passes.framework.pipeline import print_pipeline

    click.echo(print_pipeline(canonical_order(passes), all_options=True))


def main() -> None:
    cli.main(command)


if __name__ == "__main__":
    main()
