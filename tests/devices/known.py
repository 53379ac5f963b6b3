"""What may become of a job other than that it runs, each with its reason; `judge` says what is wrong."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import boost_compile as bc

from .programs import NATIVE, Job, compiled, passes
from .running import Outcome


@dataclass(frozen=True)
class Known:
    """Jobs that do not run on a device: `jobs` says which, `message` is a pattern of what is told.

    `always` is False where the outcome depends on what memory held before.
    """

    device: str
    jobs: Callable[[Job], bool]
    end: str
    message: str
    reason: str
    always: bool = True


def _networks(*names: str) -> Callable[[Job], bool]:
    return lambda job: job.network in names


KNOWN = (
    Known(
        "Ascend",
        _networks("loop", "loop_alone", "loop_weights", "branch_in_loop"),
        "no end",
        "longer than",
        "in simulation nothing computes the condition of a loop",
    ),
    Known(
        "Ascend",
        lambda job: "overflow-check" in passes(job),
        "refused",
        r"own check \(by <.*NPUGetFloatStatus.*\) cannot be made to look at its gradient"
        "|detect=status need a training cell without a check of its own",
        "the exported file asks the chip for overflows; for other devices legalize makes tests of gradients of that",
        always=False,
    ),
    Known(
        "GPU",
        lambda job: job.pipeline in ("bfloat16", "status"),
        "refused",
        "no bfloat16 kernels for products and convolutions on gpu|asks a flag that only Ascend has",
        "Ascend alone has these",
    ),
    Known(
        "Ascend",
        lambda job: job.pipeline == "bfloat16",
        "refused",
        "is in half precision already",
        "for the CPU it is refused for bfloat16 before that",
        always=False,
    ),
    Known(
        "Ascend",
        lambda job: job.network.startswith("mlp_adafactor"),
        "crashed",
        "the process ended with -11",
        "its update is a kernel of the CPU, for which MindSpore crashes in simulation, with the exported file, too",
        always=False,  # accumulation puts the update into a graph of its own
    ),
    Known(
        "Ascend",
        lambda job: job.network.startswith("mlp_adafactor"),
        "failed",
        "get device tensor store failed: .* device type",
        "the same, where other nodes of the graph use a state that it writes",
        always=False,
    ),
    Known(
        "GPU",
        lambda job: job.pipeline == NATIVE and job.network in ("mlp_half_compute", "mlp_half_weights"),
        "failed",
        r"Select GPU operator\[SparseSoftmaxCrossEntropyWithLogits\] fail! Unsupported data type",
        "MindSpore's loss takes float32 alone on a GPU, and the exported file gives it float16",
    ),
    Known(
        "GPU",
        lambda job: job.pipeline != NATIVE and job.network in ("lstm", "scaled_lstm"),
        "refused",
        "MindSpore has no gpu kernel for LSTM",
        "MindSpore exports an LSTM for one device, and the test networks are exported on a CPU",
    ),
    Known(
        "GPU",
        lambda job: job.pipeline != NATIVE and job.network in ("mlp_lars", "mlp_lars_decay"),
        "refused",
        "MindSpore has no gpu kernel for LARSUpdate",
        "Ascend alone has it; for the CPU it is refused with that name",
    ),
    Known(
        "GPU",
        lambda job: job.pipeline != NATIVE and job.network.startswith("mlp_adafactor"),
        "refused",
        "FusedAdaFactor .* would run on the CPU",
        "its kernel is one of the CPU, and MindSpore keeps a weight in one place for each graph",
        always=False,  # accumulation puts the update into a graph of its own
    ),
    Known(
        "GPU",
        lambda job: job.pipeline == NATIVE and job.network.startswith("mlp_adafactor"),
        "failed",
        "get device tensor store failed: .* device type",
        "the same, in MindSpore's words",
    ),
    Known(
        "GPU",
        lambda job: True,
        "failed",
        r"Given index \d+ out of range\. .* for switch actor",
        "a branch on a value that a kernel without a body should have computed",
        always=False,
    ),
    Known(
        "GPU",
        lambda job: job.pipeline == "dim-reduce",
        "failed",
        "the updates of the last .* windows were all skipped",
        "the count of skipped updates is such a value",
        always=False,
    ),
)


def fails(device: str, job: Job) -> bool:
    """Whether a job is known not to run."""
    return any(known.device == device and known.always and known.jobs(job) for known in KNOWN)


def judge(device: str, outcomes: Iterable[Outcome], source: Callable[[str], Path]) -> list[str]:
    """What is wrong with outcomes: nothing where each is as it should be. `source(network)` is the exported file."""
    return [text for outcome in outcomes if (text := _problem(device, outcome, source)) is not None]


def _problem(device: str, outcome: Outcome, source: Callable[[str], Path]) -> str | None:
    applicable = [known for known in KNOWN if known.device == device and known.jobs(outcome.job)]
    if any(known.end == outcome.end and re.search(known.message, outcome.message) for known in applicable):
        return None
    if outcome.end == "ran":
        expected = [known.reason for known in applicable if known.always]
        return f"{outcome.job}: ran on {device}, but {expected[0]}" if expected else None
    if outcome.end == "refused":
        # A pass refuses a program for what stands in it, wherever it is to run.
        elsewhere = refusal(outcome.job, source)
        if elsewhere is not None and _words(elsewhere) == _words(outcome.message):
            return None
        return f"{outcome.job}: refused for {device}: {outcome.message}\n  for any device: {elsewhere or 'accepted'}"
    return f"{outcome.job}: {outcome.end}\n{outcome.message}"


def _words(refusal: str) -> str:
    """A refusal without what legalize makes of it on one device alone: the passes that ran before, and a node."""
    return re.sub(r"\n  in pass .*|, after legalize{[^}]*}|\S+ in \S+ \(%[^)]*\)|%\S+ \(\w+\)", "", refusal)


def refusal(job: Job, source: Callable[[str], Path]) -> str | None:
    """The words with which a job is refused for any device; None where it compiles."""
    with tempfile.TemporaryDirectory() as scratch:
        try:
            compiled(job, bc.load(str(source(job.network))), None, Path(scratch))
        except bc.Error as error:
            return str(error)
    return None
