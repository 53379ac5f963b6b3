"""Fewer BatchNorms: judged by the same network, built without them and trained by MindSpore.

How many go is counted by hand: of a bottleneck block two of three, of a basic block one of two, of an inverted residual
block two of three; the stem's, those of downsampling branches and those outside of blocks stay.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from boost_compile.ir.core.errors import OptionError, PassError
from boost_compile.ir.core.report import PassResult
from boost_compile.ir.text import parse_program
from boost_compile.passes.framework.pipeline import parse_pipeline
from boost_compile.passes.less_bn import LessBN
from boost_compile.tools.compile import command
from mindspore import mint, nn

import boost_compile as bc
from tests import boundary, native, reference
from tests.boundary import slow
from tests.compare import assert_close
from tests.linear_cost import assert_linear
from tests.loss_scale import spoiled, train_scaled
from tests.networks import CASES, Case, build, export, state_of
from tests.networks import loss_scale as scaling
from tests.networks import training_cells as cells
from tests.networks.mlp import cross_entropy
from tests.networks.optimizers import OPTIMIZERS
from tests.networks.residual import WITHOUT, Bottleneck, Network, PreActivation, bottlenecks, nothing
from tests.networks.vision import adam, images, mindcv, momentum
from tests.passes.upstream_blocks import BLOCKS, REMOVED
from tests.passes.upstream_blocks import without as without_blocks
from tests.passes.without_layers import ONE_STEP, THREE_STEPS, State, check, run, trained
from tests.reference import LossScale
from tests.tools.support import shell

Exported = Callable[[str], Path]

COUNTS = {
    "residual_after": (11, 6),  # a stem, three bottleneck blocks, one of them with a downsampling branch
    "residual_before": (11, 6),
    "residual_in_place": (11, 6),
    "residual_half": (11, 6),
    "residual_untrained": (11, 6),
    "residual_activations": (13, 6),  # a stem, six basic blocks
    "residual_pre_activation": (5, 2),  # a stem, two blocks of two
    "residual_nested": (6, 3),  # a stem; outside two of three, and inside one of two
}
DEEP = {
    "resnet18": (20, 8),  # a stem, eight basic blocks, three downsampling branches
    "mobilenet_v2": (52, 20),  # 17 blocks of three but the first, which has two; ten with a residual; stem and head
}
LARGE = {"resnet50": (53, 32)}  # a stem, 16 bottleneck blocks, four downsampling branches


def without(name: str) -> Case:
    return replace(CASES[name], network=WITHOUT[name])


def of_less_bn(program: bc.Program) -> PassResult:
    """Its report: files that a CPU cannot run, or that write in place, are legalized before."""
    (report,) = (report for report in program.reports if report.name == "less-bn")
    return report


def removed_state(source: bc.Program, program: bc.Program) -> set[str]:
    return source.state.keys() - program.state.keys()


@pytest.mark.parametrize(
    "name",
    [
        *("residual_after", "residual_before", "residual_pre_activation", "residual_nested"),
        # Deep networks are such blocks many times; half precision is less_bn/test_execution.py.
        *slow("residual_in_place", "residual_half", "residual_untrained", "residual_activations", *DEEP, *LARGE),
    ],
)
def test_trains_as_the_network_written_without(exported: Exported, name: str) -> None:
    found, gone = {**COUNTS, **DEEP, **LARGE}[name]
    source = bc.load(str(exported(name)))
    program = check(source, without(name), steps=3 if name in COUNTS else 1)
    report = of_less_bn(program)
    assert (report.statistics["BatchNorms"], report.matched, report.changed) == (found, gone, gone)
    assert len(report.misses) == found - gone
    assert all(miss.reason.startswith("kept: ") for miss in report.misses)
    assert report.statistics["nodes after"] < report.statistics["nodes before"]


@pytest.mark.parametrize("name", ["residual_after", "residual_before"])
def test_nothing_of_a_removed_layer_is_left(exported: Exported, name: str) -> None:
    source = bc.load(str(exported(name)))
    program = bc.compile(source, "less-bn")
    layers = [site.removesuffix(".gamma") for site in of_less_bn(program).statistics["removed"]]
    assert sorted(layers) == sorted(f"blocks.{block}.bn{i}" for block in range(3) for i in (1, 2))
    gone = removed_state(source, program)
    assert gone == {name for name in source.state if any(f"{layer}." in name for layer in layers)}
    assert program.graphs["step"].states.keys() <= program.state.keys()
    assert not [node for node in program.graphs["step"] if any(layer in node.scope for layer in layers)]
    nbytes = sum(source.state[name].nbytes for name in gone)
    assert of_less_bn(program).statistics["state bytes removed"] == nbytes
    assert of_less_bn(program).statistics["parameters removed"] == 6 * 2 * 4


# -- upstream ------------------------------------------------------------------------------------------------


def case_of(name: str) -> Case:
    return BLOCKS if name == "blocks" else CASES[name]


@pytest.fixture(scope="module")
def blocks_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export(BLOCKS, tmp_path_factory.mktemp("blocks"))


def train_upstream(names: Sequence[str], steps: int) -> dict[str, tuple[list[float], State]]:
    """With mindspore.boost.LessBN around the network with its loss; names as in the file."""
    from mindspore import boost

    def wrap(network: nn.Cell, optimizer: nn.Cell) -> nn.Cell:
        return nn.TrainOneStepCell(boost.LessBN(network), optimizer)

    trained = {}
    for name in names:
        case = replace(case_of(name), wrap=wrap)
        step = build(case).train_step
        losses = [float(step(*native.tensors(batch)).asnumpy()) for batch in case.batches(steps)]
        trained[name] = losses, {key.rpartition("_backbone.")[2]: value for key, value in state_of(step).items()}
    return trained


KNOWN_UPSTREAM = ("residual_upstream", "blocks")


@pytest.fixture(scope="module")
def upstream() -> dict[str, tuple[list[float], State]]:
    """One process for all networks, since upstream leaves flags behind."""
    return native.isolated(train_upstream, KNOWN_UPSTREAM, 3)


@pytest.mark.parametrize("name", KNOWN_UPSTREAM)
def test_removes_what_upstream_removes_and_trains_as_it_does(
    name: str, exported: Exported, blocks_file: Path, upstream: dict[str, tuple[list[float], State]]
) -> None:
    """Of bottlenecks two of three, and the downsampling branch's; the like of basic blocks; of inverted residuals the
    one behind the expansion; of dense blocks those over a concatenation."""
    losses, theirs = upstream[name]
    source = bc.load(str(blocks_file if name == "blocks" else exported(name)))
    reference = replace(BLOCKS, network=without_blocks) if name == "blocks" else without(name)
    program = check(source, reference, "less-bn{select=pattern}")
    session = bc.Session(program, device="CPU")
    assert [float(session.step(*batch).loss) for batch in case_of(name).batches(3)] == pytest.approx(losses, rel=1e-6)
    initial = {name: variable.initial for name, variable in source.state.items()}
    ours = session.state()
    assert_close(ours, {n: theirs[n] for n in ours}, initial, ONE_STEP if name in CASES else THREE_STEPS)
    # What upstream removed does not move in its cell: the very state that we no longer have.
    still = {n for n, variable in source.state.items() if np.array_equal(theirs[n], initial[n])}
    gone = removed_state(source, program)
    assert {n for n in gone if not n.startswith("moments.")} <= still
    assert not [n for n in ours if n in still and n.endswith((".gamma", ".moving_mean"))]
    removed = {site.removesuffix(".gamma") for site in of_less_bn(program).statistics["removed"]}
    assert removed == {n.removesuffix(".moving_mean") for n in still if n.endswith(".moving_mean")}
    if name == "blocks":
        assert removed == set(REMOVED)


def test_a_level_removes_what_upstream_removes(
    blocks_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = shell(capsys, command, blocks_file, "--level", "O1", "-o", tmp_path / "out.boost")
    assert done.code == 0
    assert "11 of 31 BatchNorms removed" in done.out
    report = of_less_bn(bc.load(str(tmp_path / "out.boost")))
    assert report.statistics["removed"] == [f"{layer}.gamma" for layer in REMOVED]
    inner = of_less_bn(bc.compile(bc.load(str(blocks_file)), "less-bn")).statistics["removed"]
    assert inner != report.statistics["removed"]


@pytest.mark.slow
def test_densenet121(tmp_path: Path) -> None:
    """Of 58 dense layers the first of each of the four blocks takes no concatenation; what upstream removes was
    measured."""
    case = Case("densenet121", lambda: mindcv("densenet").densenet121(num_classes=10), momentum, images, cross_entropy)
    source = bc.load(str(export(case, tmp_path)))
    program = bc.compile(source, "less-bn{select=pattern}")
    assert of_less_bn(program).statistics["removed"] == [
        f"features.denseblock{block}.cell_list.{layer}.norm1.gamma"
        for block, layers in enumerate((6, 12, 24, 16), 1)
        for layer in range(1, layers)
    ]


@pytest.mark.filterwarnings("ignore::boost_compile.passes.configuration.boost_document.BoostNote")
def test_a_level_removes_the_inner_ones_where_upstream_knows_no_pattern(exported: Exported) -> None:
    source = bc.load(str(exported("resnet18")))
    configured = of_less_bn(bc.compile(source, bc.from_boost_config(level="O1")))
    assert configured.statistics["removed"] == of_less_bn(bc.compile(source, "less-bn")).statistics["removed"]


def test_upstream_knows_no_addition_in_place(exported: Exported) -> None:
    with pytest.raises(PassError, match="matched nothing"):
        bc.compile(bc.load(str(exported("resnet18"))), "less-bn{select=pattern}")


# -- together with other passes ------------------------------------------------------------------------------


def test_with_overflow_check_and_loss_scale(exported: Exported) -> None:
    name = "residual_before"
    case = without(name)
    data = [list(cycle) for cycle in case.cycles(4, 2)]
    data[1][0] = reference.overflowing(data[1][0])
    source = bc.load(str(exported(name)))
    pipeline = "less-bn,gradient-accumulation{steps=2},overflow-check,loss-scale{mode=dynamic,init=1024,window=2}"
    ours = boundary.train(bc.compile(source, pipeline), users := bc.compile(source, "less-bn"), data)
    expected = reference.train(case, data, loss_scale=LossScale(1024.0, 2), overflow="skip-cycle")
    assert [seen.overflow for seen in ours] == [False, True, False, False]
    boundary.check(ours, expected, users)


# -- training cells and optimizers ---------------------------------------------------------------------------


def one_block(inner: Callable[[int], nn.Cell] = nn.BatchNorm2d) -> nn.Cell:
    return Network([PreActivation(8, inner)], 8)


def one_bottleneck(inner: Callable[[int], nn.Cell] = nn.BatchNorm2d) -> nn.Cell:
    return Network([Bottleneck(8, 4, 16, 1, "after", inner)], 16)


class Loss(cells.Loss):
    """A residual network with its loss, for training cells that take such."""

    def __init__(self, inner: Callable[[int], nn.Cell]) -> None:
        super().__init__()
        self.network = one_bottleneck(inner)


def pair(tmp_path: Path, case: Case, network: Callable[..., object]) -> tuple[bc.Program, Case]:
    """The file of ``case`` with a network, and the case with the network without its inner normalisations."""
    full = replace(case, network=lambda: network(nn.BatchNorm2d))
    return bc.load(str(export(full, tmp_path))), replace(case, network=lambda: network(nothing))


@pytest.mark.parametrize(
    "cell",
    [
        cells.ClipGlobalNorm,
        *slow(
            cells.Average,
            cells.SkipLargeNorm,
            cells.HandMomentum,
            cells.ClipByNorm,
            cells.GatedUpdate,
            cells.MappedMomentum,
        ),
    ],
)
def test_the_share_in_what_serves_all_weights_goes_too(tmp_path: Path, cell: Callable[..., object]) -> None:
    """Norms over all gradients, in a sum, in a stack and in place; gradients that pass through functions; averages
    of weights; updates written by hand."""
    case = Case("cell", Loss, momentum, CASES["residual_after"].batch, wrap=cell)
    source, reference = pair(tmp_path, case, Loss)
    program = check(source, reference)
    assert of_less_bn(program).changed == 2


@pytest.mark.parametrize(
    "wrap",
    [
        scaling.as_gpu,
        *slow(scaling.as_ascend_910a, scaling.as_ascend_910b),
        scaling.dynamic(2.0**10, 2),
        *slow(scaling.dynamic(2.0**10, 2, scaling.PartlyAwaited), scaling.dynamic(2.0**10, 2, scaling.AskedInBranch)),
    ],
    ids=["gpu", "910a", "910b", "status", "partly", "branch"],
)
def test_cells_with_a_loss_scale(tmp_path: Path, wrap: Callable[..., object]) -> None:
    """The optimizer stands in a function, and every form of the finite check asks about all gradients."""
    case = replace(CASES["residual_after"], name="scaled", optimizer=adam, wrap=wrap)
    source, case = pair(tmp_path, case, one_bottleneck)
    program = bc.compile(source, "less-bn")
    assert of_less_bn(program).changed == 2
    for function in program.graphs["step"].functions.values():
        assert not [formal.name for formal in function.inputs if "bn1" in formal.name or "bn2" in formal.name]
    batches = spoiled(case.batches(4), {1: np.inf})
    expected = train_scaled(case, [[batch] for batch in batches])
    session = bc.Session(program, device="CPU")
    losses = [session.step(*batch).loss for batch in batches]
    np.testing.assert_allclose(losses[0], expected.losses[0][0], rtol=1e-6)
    assert expected.skipped == [False, True, False, False]
    ours = session.state()
    assert ours.keys() == expected.states[-1].keys()
    assert_close(ours, expected.states[-1], expected.initial, THREE_STEPS)


@pytest.mark.parametrize(
    "name", ["adam_weight_decay_decomposed", "rprop", "adam_groups", *slow("sgd_momentum", "adam_lazy")]
)
def test_optimizers_of_every_form(tmp_path: Path, name: str) -> None:
    case = Case(name, one_block, OPTIMIZERS[name], *_data())
    source, reference = pair(tmp_path, case, one_block)
    assert of_less_bn(check(source, reference)).changed == 1


def test_an_optimizer_of_functions(tmp_path: Path) -> None:
    """ASGD is exported as a chain of functions that one another call, with branches on a state of each weight; those
    branches stay, and with them these numbers."""
    case = Case("asgd", one_block, OPTIMIZERS["asgd"], *_data())
    source, reference = pair(tmp_path, case, one_block)
    program = bc.compile(source, "less-bn")
    [ours] = run(program, reference, 1)
    initial, expected = trained(reference, 1)
    assert sorted(ours.keys() - expected.keys()) == ["mu_blocks.0.bn1.beta", "mu_blocks.0.bn1.gamma"]
    assert_close({n: ours[n] for n in expected}, expected, initial, ONE_STEP)


def _data() -> tuple[Callable[..., object], Callable[[], object]]:
    return CASES["residual_after"].batch, CASES["residual_after"].loss  # type: ignore[return-value]


class MintBlock(nn.Cell):
    """A block of `mindspore.mint`, whose primitives have no CPU kernels; its BatchNorm is another one."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = mint.nn.Conv2d(3, 3, 3, padding=1, bias=False)
        self.bn1 = mint.nn.BatchNorm2d(3)
        self.conv2 = mint.nn.Conv2d(3, 3, 3, padding=1, bias=False)
        self.bn2 = mint.nn.BatchNorm2d(3)
        self.relu = mint.nn.ReLU()
        self.head = mint.nn.Linear(3, 10)

    def construct(self, x):
        x = mint.add(x, self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x))))))
        return self.head(x.mean((2, 3)))


def test_the_other_batch_norm_goes_too(tmp_path: Path) -> None:
    """Its count of batches is a state of its own, tied to the layer by nothing but its name: it stays."""
    case = replace(CASES["residual_after"], name="mint", network=MintBlock)
    source = bc.load(str(export(case, tmp_path)))
    program = bc.compile(source, "less-bn")
    names = {f"bn1.{p}" for p in ("weight", "bias", "running_mean", "running_var")}
    assert removed_state(source, program) == names | {"moments.bn1.weight", "moments.bn1.bias"}
    used = [node.op.name for node in program.graphs["step"]]
    assert (used.count("BatchNormExt"), used.count("BatchNormGradExt")) == (1, 1)


# -- cost ----------------------------------------------------------------------------------------------------

MAP = "float32[1,2,4,4]"
NORM = f"({MAP}, float32[2], float32[2], float32[2], float32[2])"


def blocks(count: int, far: bool) -> str:
    """The text of a step that trains ``count`` blocks of two convolutions and two BatchNorms, whose gradients share a
    norm. ``far``: every block adds the network's input, so that each stands inside the next."""
    state, forward, backward, update = [], [], [], []
    layers = [(i, j) for i in range(count) for j in (1, 2)]
    for i, j in layers:
        k = f"{i}_{j}"
        state.append(f"state %w{k}: float32[2,2,1,1] role=weight")
        state += [f"state %{p}{k}: float32[2] role=weight" for p in ("gamma", "beta")]
        state += [f"state %{p}{k}: float32[2] role=statistic" for p in ("mean", "var")]
        x = f"%r{i}" if j == 2 else f"%y{i}"
        forward += [
            f'%l{k} = Load(%w{k}, umonad) : float32[2,2,1,1] primal {{unique_id = "l{k}"}}',
            f'%c{k} = Conv2D({x}, %l{k}) : {MAP} primal {{unique_id = "c{k}"}}',
            f"%n{k} = BatchNorm(%c{k}, %gamma{k}, %beta{k}, %mean{k}, %var{k}, true, 1e-05, 0.1, 0, umonad) : {NORM}"
            f' primal {{unique_id = "n{k}"}}',
            f'%a{k} = TupleGetItem(%n{k}, 0) primal {{unique_id = "a{k}"}}',
            f'%r{i} = ReLU(%a{k}) : {MAP} primal {{unique_id = "r{k}"}}'
            if j == 1
            else f'%y{i + 1} = Add(%y{0 if far else i}, %a{k}) primal {{unique_id = "y{k}"}}',
        ]
    for i, j in reversed(layers):
        k, mark = f"{i}_{j}", f'primal {{forward_unique_id = "n{i}_{j}"}}'
        backward += [
            f"%s{k} = TupleGetItem(%n{k}, 3) {mark}",
            f"%dn{k} = BatchNormGrad(%dy{i + 1}, %c{k}, %gamma{k}, %s{k}, %s{k}, %s{k}, true, 1e-05, 0)"
            f" : ({MAP}, float32[2], float32[2]) {mark}"
            if j == 2
            else f"%dn{k} = BatchNormGrad(%dr{i}, %c{k}, %gamma{k}, %s{k}, %s{k}, %s{k}, true, 1e-05, 0)"
            f" : ({MAP}, float32[2], float32[2]) {mark}",
            f"%dc{k} = TupleGetItem(%dn{k}, 0) {mark}",
            f"%dgamma{k} = TupleGetItem(%dn{k}, 1) {mark}",
            f"%dbeta{k} = TupleGetItem(%dn{k}, 2) {mark}",
            f"%dw{k} = Conv2DBackpropFilter(%dc{k}, %{'r' if j == 2 else 'y'}{i}, (2, 2, 1, 1))"
            f" : float32[2,2,1,1] {mark}",
            f"%{f'dr{i}' if j == 2 else f'dy{i}'} = Conv2DBackpropInput(%dc{k}, %l{k}, (1, 2, 4, 4)) : {MAP} {mark}",
        ]
    weights = [f"{p}{i}_{j}" for i, j in layers for p in ("w", "gamma", "beta")]
    update += [f"%q{w} = ReduceSum(%d{w}, (), false, false) : float32[]" for w in weights]
    update += [f"%qs = MakeTuple({', '.join(f'%q{w}' for w in weights)})", "%norm = AddN(%qs) : float32[]"]
    update += [f"%z{w} = RealDiv(%d{w}, %norm)" for w in weights]
    update += [f"%p{w} = AssignSub(%{w}, %z{w}, umonad)" for w in weights]
    update += [f"%ps = MakeTuple({', '.join(f'%p{w}' for w in weights)})", "%u = UpdateState(umonad, %ps)"]
    return "\n".join([
        *state,
        f"graph @step(%x: {MAP}) {{",
        f'%y0 = ReLU(%x) : {MAP} primal {{unique_id = "y"}}',
        *forward,
        f'%loss = ReduceSum(%y{count}, (), false, false) : float32[] primal {{unique_id = "loss"}}',
        f'%dy{count} = OnesLike(%y{count}) primal {{forward_unique_id = "loss"}}',
        *backward,
        *update,
        "%r = Depend(%loss, %u)",
        "return %r",
        "}",
    ])  # fmt: skip


@pytest.mark.parametrize("far", [False, True], ids=["chain", "far"])
def test_the_cost_is_linear_in_the_blocks(far: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def prepare(program: bc.Program) -> Callable[[], object]:
        copy = program.copy()
        return lambda: LessBN().run(copy)

    programs = [parse_program(blocks(count, far)) for count in (20, 40, 80)]
    result = LessBN().run(programs[0].copy())
    assert (result.matched, result.changed) == (20, 20)
    assert_linear(monkeypatch, prepare, programs)


# -- what stays ----------------------------------------------------------------------------------------------


def reasons(program: bc.Program) -> dict[str, str]:
    return {miss.site: miss.reason for miss in of_less_bn(program).misses}


def test_a_shared_batch_norm_stays(exported: Exported) -> None:
    with pytest.raises(PassError, match="serves another BatchNorm too"):
        bc.compile(bc.load(str(exported("residual_shared"))), "less-bn")


def test_a_batch_norm_whose_gamma_is_part_of_the_loss_stays(exported: Exported) -> None:
    source = bc.load(str(exported("residual_regularized")))
    program = bc.compile(source, "less-bn")
    found = reasons(program)
    assert "of the forward part takes it too" in found["network.blocks.0.bn1.gamma"]
    assert "network.blocks.0.bn2.gamma" not in found
    assert of_less_bn(program).changed == 5


def test_additions_that_are_no_residual(exported: Exported) -> None:
    with pytest.raises(PassError, match=r"bn1\.gamma: kept: not inside a residual block"):
        bc.compile(bc.load(str(exported("residual_none"))), "less-bn")


# -- options -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("join", ["after", "in_place"])
def test_every_batch_norm_by_scope(exported: Exported, join: str) -> None:
    """Those next to an addition too; one that is done in place then writes what the convolution made."""

    def bare() -> nn.Cell:
        network = bottlenecks(join, nothing)
        network.bn = nothing(8)
        for block in network.blocks:
            block.bn3 = nothing(16)
        network.blocks[0].down[1] = nothing(16)
        return network

    name = f"residual_{join}"
    source = bc.load(str(exported(name)))
    program = check(source, replace(CASES[name], network=bare), 'less-bn{select=scope,scope="*"}')
    assert of_less_bn(program).changed == 11


@pytest.mark.parametrize("options", ["select=scope", "scope=a", "select=inner,scope=a", "max_removed=0"])
def test_options_that_do_not_fit(options: str) -> None:
    with pytest.raises(OptionError):
        parse_pipeline(f"less-bn{{{options}}}")
