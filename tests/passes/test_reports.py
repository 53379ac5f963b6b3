"""What passes report, and what they refuse: each site with the reason."""

from __future__ import annotations

from typing import Any

import pytest
from boost_compile.ir.core.errors import Error
from boost_compile.ir.core.program import Program
from boost_compile.passes import compile_program

from tests.passes.graphs import source


def compiled(what: str, *pipelines: str, target: str | None = None) -> Program:
    found = source(what)
    for pipeline in pipelines:
        found = compile_program(found, pipeline, reproducer_directory=None, target=target)
    return found


NEVER = "not the big batch: %w0 (Load): state 'w' ({}[2]) has the batch's extent but does not grow with it"
NONE_BEFORE = {"collectives a window before": 0, "bytes a window before": 0}
CLIPPED_ALREADY = "clipped already: clipped once more, after that"


def assumed(node: str, what: str = "a stage of the training cell") -> str:
    """Of a network without scopes."""
    return f"{node} is taken for {what}: the file does not tell which cell computes it; unscale=NUMBER or none says"


REPORTS: list[tuple[str, str, int, int, str, dict[str, Any], dict[str, str]]] = [
    (
        "data_parallel.ir", "data-parallel{fusion=0}", 4, 4,
        # the network's own, four gradients of 24, 8, 8 and (half, made wide) 8 bytes, the number of ranks
        "4 gradients in 4 collectives; a window exchanges 60 B (8 B before)",
        {
            "gradients": 4, "collectives a window before": 1, "bytes a window before": 8, "collectives a window": 6,
            "bytes a window": 60,
        },
        {"linear": "its gradient is a constant, the same on every rank"},
    ),
    (
        "data_parallel_export.ir", "data-parallel", 2, 2,
        # both gradients, the number of ranks for the mean and for the file's factor
        "2 gradients in 1 collective; a window exchanges 24 B (16 B before); 2 reductions of the file are replaced",
        {
            "gradients": 2, "collectives a window before": 2, "bytes a window before": 16, "collectives a window": 3,
            "bytes a window": 24,
        },
        {
            "own": "the file reduces other gradients and not this one: each rank keeps its own weight",
            "1 factor of the file": "may be more than 1/ranks, and kept: right for as many ranks as the file was "
            "exported for",
        },
    ),
    (
        "replace_optimizer_summands.ir", "loss-scale", 1, 1,  # w takes part twice
        "1 seed of the gradients of 1 weight (at 2 places) multiplied by 65536 (dynamic), the gradients divided by it "
        "once", {"seeds multiplied in step": 1}, {},
    ),
    (
        "parameter_groups.ir", "gradient-accumulation{steps=2},loss-scale{mode=static,init=8}", 2, 2,
        "1 seed of 2 gradients multiplied by 8 (static), the gradients divided by it once",
        {"seeds multiplied in accumulate": 1}, {},
    ),
    (
        "FROZEN", "data-parallel", 2, 2, "2 gradients in 1 collective; a window exchanges 20 B (0 B before)",
        {"gradients": 2, **NONE_BEFORE, "collectives a window": 2, "bytes a window": 20},
        {"frozen": "the loss does not depend on it, or nothing updates it: there is no gradient"},
    ),
    (
        "UNTRAINED", "gradient-accumulation{steps=3},data-parallel", 2, 2,
        "2 gradients in 1 collective; a window exchanges 20 B (0 B before)",
        {"gradients": 2, **NONE_BEFORE, "collectives a window": 2, "bytes a window": 20},
        {"frozen": "nothing trains it"},
    ),
    (
        "parameter_groups.ir", "parameter-groups{match=[w],lr_factor=2.0,weight_decay=0.5,fusion=3}", 1, 1,
        "1 weight gets lr_factor 2.0, weight_decay 0.5, fusion 3", {}, {},
    ),
    (
        "FROZEN", "parameter-groups{match=[frozen,w,u],weight_decay=0.0}", 2, 1, "2 weights get weight_decay 0.0", {},
        {
            "u": "no trained weight has such a name (known: frozen, v, w)",
            "frozen": "nothing updates it from a gradient",
        },
    ),
    (
        "STEP", "gradient-accumulation,overflow-check{policy=skip-micro},data-parallel", 2, 2,
        # both gradients, the count of micro-batches and that of dropped ones
        "2 gradients in 1 collective; a window exchanges 24 B (0 B before)",
        {"gradients": 2, **NONE_BEFORE, "collectives a window": 3, "bytes a window": 24}, {},
    ),
    (
        "HALVED", "clip-gradients", 2, 2, "2 gradients clipped: their norm is at most 1",
        {"gradients clipped": 2, "graphs": 1}, {"v": assumed("%c (Mul)"), "w": assumed("%d (Mul)")},
    ),
    (
        "mlp", "parameter-groups{centralize=true}", 4, 4, "4 weights get centralize True", {},
        dict.fromkeys(
            ["hidden.bias", "output.bias"], "it has one axis at most: nothing is left to take a mean over"
        ),
    ),
    ("UNTRAINED", "parameter-groups{fusion=1}", 2, 2, "2 weights get fusion 1", {}, {}),
    ("mlp", "parameter-groups{match=[*.bias],fusion=1}", 2, 2, "2 weights get fusion 1", {}, {}),
    (
        "FROZEN", "parameter-groups{lr_factor=0.5}", 3, 2, "3 weights get lr_factor 0.5", {},
        {"frozen": "nothing updates it from a gradient"},
    ),
    (
        "parameter_groups.ir", "parameter-groups{rank=vector,centralize=true,split_points=[0,1]}", 1, 1,
        "1 weight gets centralize True, split_points (0, 1)", {},
        {
            "w": "it has one axis at most: nothing is left to take a mean over",
            "split point 1": "only 1 weight matches",
        },
    ),
    (
        "parameter_groups.ir", "parameter-groups{split_points=[2]}", 2, 2, "2 weights get split_points (2,)", {},
        {"split point 2": "only 2 weights match"},
    ),
    (
        "FROZEN", "clip-gradients{by=tensor-norm,limit=0.5}", 2, 2,
        "2 gradients clipped: the norm of each is at most 0.5", {"gradients clipped": 2, "graphs": 1},
        {"frozen": "the loss does not depend on it: no gradient to clip"},
    ),
    (
        "data_parallel.ir", "clip-gradients{by=value},clip-gradients{limit=2}", 5, 5,
        "5 gradients clipped: their norm is at most 2", {"gradients clipped": 5, "graphs": 1},
        {
            "decayed": (CLIPPED_ALREADY, assumed("%unscaled (Mul)")), "tied": CLIPPED_ALREADY, "half": CLIPPED_ALREADY,
            "stepped": (CLIPPED_ALREADY, assumed("%by_rate (Mul)", "a part of the update")), "linear": CLIPPED_ALREADY,
        },
    ),
    (
        "STEP", "gradient-accumulation{split=fused},clip-gradients{by=value,each_rank=true}", 2, 2,
        "2 gradients clipped on each rank: each element is at most 1", {"gradients clipped": 2, "graphs": 2}, {},
    ),
    (
        "DECAY_FIRST",
        "clip-gradients", 2, 2, "2 gradients clipped: their norm is at most 1",
        {"gradients clipped": 2, "graphs": 1},
        {"v": assumed("%half (Mul)")},
    ),
    (
        "STEP", "overflow-check", 2, 2, "2 gradients checked; one that is not finite skips its window",
        {"gradients checked": 2, "graphs": 1}, {},
    ),
    (
        "data_parallel.ir", "overflow-check", 5, 5, "5 gradients checked; one that is not finite skips its window",
        {"gradients checked": 5, "graphs": 1}, {},
    ),
    (
        "STEP", "overflow-check{policy=skip-micro}", 2, 2,
        "2 gradients checked; one that is not finite skips its window",
        {"gradients checked": 2, "graphs": 1}, {},
    ),
    (
        "STEP", "gradient-accumulation{split=fused},overflow-check{policy=skip-micro}", 2, 2,
        "2 gradients checked; one that is not finite skips its micro-batch",
        {"gradients checked": 2, "graphs": 2}, {},
    ),
    (
        "STEP", "gradient-accumulation,overflow-check{detect=status}", 2, 2,
        "2 gradients checked; one that is not finite skips its window", {"gradients checked": 2, "graphs": 1}, {},
    ),
    (
        "mlp_loss_scale_dynamic", "overflow-check", 4, 4,
        "4 gradients checked; one that is not finite skips its window, by the check that the file brings",
        {"gradients checked": 4, "graphs": 1}, {},
    ),
    (
        "STEP", "overflow-check,gradient-accumulation,group-loss-scale", 2, 2,
        "2 gradients in 2 groups, scaled at 2 places",
        {
            "places scaled in accumulate": 2, "group 0": "1 weight (v)", "group 1": "1 weight (w)",
        },
        {"groups": "the network has 2 layers with trained weights, so 2 groups"},
    ),
    (
        "mlp", "overflow-check,group-loss-scale{match=[hidden.bias,*]}", 4, 4,
        # the loss's derivative, and where that of the second layer and of the first matrix leaves the way to the bias
        "4 gradients in 2 groups, scaled at 3 places",
        {
            "places scaled in step": 3, "group 0": "1 weight (hidden.bias)",
            "group 1": "3 weights (hidden.weight, output.weight, output.bias)",
        },
        {},
    ),
    (
        "lenet_bn", "overflow-check,group-loss-scale{groups=2}", 11, 11,
        "11 gradients in 2 groups, scaled at 2 places",
        {
            "places scaled in step": 2, "group 0": "7 weights (conv1.weight, bn1.gamma, bn1.beta, …)",
            "group 1": "4 weights (fc1.weight, fc1.bias, fc2.weight, …)",
        },
        {},
    ),
    (
        "STEP", "gradient-accumulation,loss-scale{mode=static}", 2, 2,
        "1 seed of 2 gradients multiplied by 1024 (static), the gradients divided by it once",
        {"seeds multiplied in accumulate": 1}, {},
    ),
    (
        "STEP", "overflow-check,loss-scale", 2, 2,
        "1 seed of 2 gradients multiplied by 65536 (dynamic), the gradients divided by it once",
        {"seeds multiplied in step": 1}, {},
    ),
    (
        "gradient_accumulation.ir", "gradient-accumulation{steps=3}", 1, 1,
        "1 gradient accumulated over 3 micro-batches (8 B of accumulators); not one step on the joined batch",
        {
            "accumulators": 1, "accumulator bytes": 8, "nodes before": 17, "nodes in accumulate": None,
            "nodes in apply": None,
            "big batch": "never", "joins": NEVER.format("float32"),
        },
        {
            "frozen": "frozen: nothing updates it, so there is no gradient to accumulate",
            "%w0 (Load)": NEVER.format("float32"),
        },
    ),
    (
        "gradient_accumulation_decisions.ir", "gradient-accumulation{dtype=same,carry=last}", 2, 1,
        "1 gradient accumulated over 4 micro-batches (4 B of accumulators); not one step on the joined batch",
        {
            "accumulators": 1, "accumulator bytes": 4, "nodes before": 13, "nodes in accumulate": None,
            "nodes in apply": None,
            "big batch": "never", "joins": NEVER.format("float16"),
        },
        {
            "bias": "the same for every batch: its update takes a constant for a gradient",
            "step_size": "the update side (by %descent (ApplyGradientDescent)) sees the last micro-batch's value",
            "%w0 (Load)": NEVER.format("float16"),
        },
    ),
    (
        "adasum.ir", "adasum{devices_per_group=4}", 1, 1,
        "the steps of 1 weight (8 B) combined over groups of 4 ranks",
        # of 8 ranks: 2 halves of one element, 3 products, 1 element; of 16: also a level with halves of two
        {"weights combined": 1, "elements": 2, "bytes a rank gives, 2 groups": 24, "bytes a rank gives, 4 groups": 52},
        {},
    ),
    (
        "FROZEN", "adasum", 2, 2, "the steps of 2 weights (16 B) combined over groups of 1 rank",
        {"weights combined": 2, "elements": 4, "bytes a rank gives, 2 groups": 40, "bytes a rank gives, 4 groups": 76},
        {"frozen": "nothing updates it, or each rank keeps its own"},
    ),
    (
        "BALLAST", "effect-chain-minimization", 3, 1, "3 token links to 2, 4 nodes removed",
        {"links before": 3, "links after": 2, "nodes removed": 4}, {},
    ),
    (
        # one behind the other, updates need a link more
        "STEP", "effect-chain-minimization", 2, 0, "2 token links to 3, 3 nodes added",
        {"links before": 2, "links after": 3, "nodes removed": -3}, {},
    ),
    (
        "PURE", "effect-chain-minimization", 0, 0, "0 token links to 0, 0 nodes removed",
        {"links before": 0, "links after": 0, "nodes removed": 0}, {},
    ),
    (
        "dead_code_elimination.ir", "dead-code-elimination", 10, 10,
        "removed 7 nodes, 2 functions, 1 state variable (sum)", {"nodes": 7, "functions": 2, "state": ["sum"]}, {},
    ),
    (
        "STEP", "dead-code-elimination", 0, 0, "every node is needed", {"nodes": 0, "functions": 0, "state": []}, {},
    ),
    (
        "mlp_loss_scale_dynamic@ascend", "adasum", 4, 4,
        "the steps of 4 weights (848 B) combined over groups of 1 rank",
        {
            "weights combined": 4, "elements": 212, "bytes a rank gives, 2 groups": 896,
            "bytes a rank gives, 4 groups": 1580,
        },
        {"get_status:41": "the file's own overflow check: each group skips and scales by itself"},
    ),
    ("batch_size.ir", "batch-size{size=6}", 1, 8, "batch 4 → 6: 8 values", {"from": 4, "inputs": 2}, {}),
    ("batch_size.ir", "batch-size{dynamic=true}", 1, 8, "batch 4 → any size: 8 values", {"from": 4, "inputs": 2}, {}),
    (
        # of 37 operations, those of two gradients and of one update, 4 each
        "freeze.ir", "freeze{match=[v]}", 1, 1,
        "1 weight of 2 frozen; 32 % of the estimated FLOPs and 16 B of optimizer state less",
        {"weights frozen": 1, "nodes removed": 3, "state removed": "16 B"}, {},
    ),
    (
        "weight_average.ir", "weight-average", 2, 2, "2 weights averaged (ema)",
        {"weights averaged": 2, "elements": 4}, {"frozen": "nothing updates it: its average is itself"},
    ),
    (
        # two slots of 16 bytes: one rank of two holds one of them, and of more ranks two hold one and the others none
        "freeze.ir", "data-parallel,shard-optimizer", 2, 2,
        "the slots of 2 weights (32 B) dealt out: one of 4 ranks holds at most 16 B (100 % over the mean); a window "
        "sends 32 B of new weights",
        {
            "weights": 2, "states": 2, "bytes of them": 32, "bytes of gradients a window before": 36,
            "bytes of gradients a window": 36, "bytes of new weights a window": 32, "bytes a rank holds, 2 ranks": 16,
            "bytes a rank holds, 4 ranks": 16, "bytes a rank holds, 8 ranks": 16,
        },
        {},
    ),
    (
        # both products of the first layer, 120 each, and its Tanh, 20 forward and backward, of 540; into it go %x and
        # %v0, out of it %a, into its gradient %da, out of that %dv
        "mixed_precision/mixed_precision.ir", "mixed-precision{level=O2,loss_scale=false,keep=second-Dense}", 7, 4,
        "O2: 4 nodes in float16, 52% of the operations; 7 casts",
        {
            "level": "O2", "casts": 7, "of them again in the backward part": 2, "operations in float16": "51.9%",
            "primitives": {"MatMul": 2, "Tanh": 1, "TanhGrad": 1},
        },
        {"step: MatMul in net/second-Dense/MatMul-op0 (%z)": "stays in float32: keep names its scope"},
    ),
    (
        "mixed_precision/mixed_precision.ir", "mixed-precision{level=O1,loss_scale=false}", 7, 5,
        "O1: 5 nodes in float16, 89% of the operations; 13 casts",
        {
            "level": "O1", "casts": 13, "of them again in the backward part": 2, "operations in float16": "88.9%",
            "primitives": {"MatMul": 5},
        },
        {},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("what", "pipeline", "matched", "changed", "summary", "statistics", "misses"), REPORTS)
def test_what_a_pass_reports(
    what: str,
    pipeline: str,
    matched: int,
    changed: int,
    summary: str,
    statistics: dict[str, Any],
    misses: dict[str, str | tuple[str, ...]],
) -> None:
    """Of the pass that the pipeline names last."""
    program = compiled(what, pipeline, target="ascend" if "=status" in pipeline else None)
    (*_, report) = sorted(program.reports, key=lambda report: pipeline.rfind(report.name))
    statistics |= {k: len(program.graphs[k.split()[-1]]) for k, number in statistics.items() if number is None}
    assert (report.summary, report.matched, report.changed) == (summary, matched, changed)
    assert report.statistics == statistics
    wanted = [(at, reason) for at, told in misses.items() for reason in (told if isinstance(told, tuple) else (told,))]
    assert [(miss.site, miss.reason) for miss in report.misses] == wanted


REFUSED = [
    ("STEP", "parameter-groups{fusion=1,split_points=[1]}", "fusion and split_points both number groups"),
    ("STEP", "parameter-groups{match=[v]}", "is told which weights, not what they get"),
    ("STEP", "parameter-groups{match=[z],lr_factor=2}", "matched nothing"),
    ("hand_momentum", "parameter-groups{weight_decay=0.5}", "made of many primitives"),
    ("BOTH_MOVE", "parameter-groups{match=[v],lr_factor=2}", "updates weight 'v' in several functions"),
    ("HALVED", "clip-gradients{report_norm=true}", "inside function 'move', from where its norm cannot be returned"),
    ("SHARED", "parameter-groups{match=[v],lr_factor=2}", "updates weight 'v' and others by one function"),
    ("DOUBLE", "data-parallel", "is float64, which AllReduce does not add up"),
    ("INSIDE", "data-parallel", "is computed inside function 'move', which not every rank may call"),
    ("CROSSING", "data-parallel", "not the gradient of a weight and differs by rank"),
    ("IN_TURN", "data-parallel", "use fusion=0"),
    ("ALONE", "data-parallel", "asks this device alone for overflows"),
    ("data_parallel.ir", "data-parallel{mean=false}", "constant of graph 'step', which data-parallel cannot sum"),
    ("data_parallel_export.ir", "data-parallel{mean=true}", "1/ranks may be one factor of several"),
    ("IN_TURN", "clip-gradients{report_norm=true}", "in turns, and no norm of all gradients exists before the first"),
    ("IN_TURN", "clip-gradients{each_rank=true}", "no norm of all of them exists before the first update"),
    ("INSIDE", "clip-gradients", "different functions .'step', 'move'., so they have no common norm"),
    ("IN_FUNCTION", "clip-gradients{by=value,report_norm=true}", "so they have no common norm"),
    *(
        ("STEP", f"clip-gradients{{each_rank=true}}|{name}", f"pass '{name}' changes gradients in front of an earlier")
        for name in ("gradient-accumulation", "loss-scale", "overflow-check")
    ),
    ("SPARSE", "clip-gradients", "has a norm that no sum of its elements gives"),
    ("TWICE", "clip-gradients", "from several gradients .%dv .Mul., %dy .Mul.. one after the other"),
    ("INSIDE", "overflow-check", "is computed inside a function, and the check stands in front of all updates"),
    ("STEP", "overflow-check{detect=status},overflow-check", "the target is cpu"),
    ("STEP", "overflow-check,overflow-check", "ask for it once"),
    ("mlp_loss_scale_dynamic", "overflow-check{policy=skip-micro}", "need a training cell without a check of its own"),
    ("STEP", "loss-scale|overflow-check{policy=skip-micro}", "the one that a dynamic loss-scale brings along"),
    ("STEP", "overflow-check{policy=skip-micro}|gradient-accumulation", "ask for gradient-accumulation before it"),
    ("STEP", "loss-scale{factor=1}", "'factor' must be above 1, not 1"),
    ("STEP", "loss-scale{init=2,min=4}", "init=2 is not between min=4 and max=1.67772e.07"),
    ("STEP", "loss-scale{init=2,max=1}", "init=2 is not between min=1 and max=1"),
    ("STEP", "loss-scale,loss-scale", "scales its loss already"),
    ("STEP", "loss-scale|group-loss-scale", "scales its loss already"),
    ("mlp_loss_scale_dynamic@ascend", "overflow-check", "own check .* cannot be made to look at its gradient"),
    ("mlp_loss_scale_dynamic", "loss-scale", "scales its loss by itself"),
    ("mlp_loss_scale_dynamic", "group-loss-scale", "scales its loss by itself"),
    ("STEP", "group-loss-scale{window=3}", "'window' must be even, not 3"),
    ("STEP", "group-loss-scale{min=3}", "'min' must be a power of two, not 3"),
    ("STEP", "group-loss-scale{max=1000}", "'max' must be a power of two, not 1000"),
    ("STEP", "group-loss-scale{init=[]}", "'init' is empty"),
    ("STEP", "group-loss-scale{init=[4,0.5]}", "init=0.5 is not between min=1 and max"),
    ("STEP", "group-loss-scale{max=2,init=[4]}", "init=4 is not between min=1 and max=2"),
    ("STEP", "group-loss-scale{match=[*]}", "one group is what loss-scale is for"),
    ("STEP", "group-loss-scale{match=[v,u]}", "weight 'w' is in no group"),
    ("STEP", "group-loss-scale{match=[*,w]}", "group 'w' has no weight of its own"),
    ("STEP", "group-loss-scale{groups=2,init=[1,2,3]}", "init has 3 scales for 2 groups"),
    ("STEP", "group-loss-scale{groups=1}", "at least 2"),
    ("STEP", "loss-scale,group-loss-scale", "ask for loss-scale or group-loss-scale, and once"),
    ("STEP", "group-loss-scale|loss-scale", "scales its loss already"),
    ("ONE_LAYER", "group-loss-scale{groups=2}", "has 1 layer with trained weights"),
    ("STEP", "gradient-accumulation{reduction=weighted}", "belong together"),
    ("STEP", "gradient-accumulation{weight=x}", "belong together"),
    ("OPEN", "gradient-accumulation", "has no fixed shape: it cannot be accumulated"),
    ("CARRIED", "gradient-accumulation{carry=last}", "has no fixed shape: it cannot be kept"),
    ("INSIDE", "gradient-accumulation", "only gradients of the main graph can be cut"),
    ("STEP", "schedule{}", "kind=cosine needs total"),
    ("STEP", "schedule{total=5,warmup=5}", "warmup=5 leaves nothing of total=5"),
    ("STEP", "schedule{kind=table}", "needs table, the rates one by one"),
    ("STEP", "schedule{kind=table,table=[0.1],lr=1}", "has all rates in its table"),
    ("STEP", "schedule{kind=constant,total=5}", "has no end"),
    ("STEP", "schedule{total=5,start=0.1}", "has no warm-up"),
    ("STEP", "schedule{total=5,lr=inf}", "finite numbers, not inf"),
    ("STEP", "schedule{total=5},schedule{total=6}", "has a schedule of its learning rate already"),
    ("hand_momentum", "schedule{total=5}", "by AssignSub, and nothing"),
    ("STEP", "replace-optimizer{to=adm}", "no optimizer is called 'adm'.*'adam'"),
    ("STEP", 'replace-optimizer{to="adam{lr"}', "expected '='"),
    ("STEP", 'replace-optimizer{to="lion{betta1=0.5}"}', "has no option 'betta1'.*'beta1'"),
    ("STEP", 'replace-optimizer{to="muon{nesterov=1}"}', "option 'nesterov' is true or false, not 1"),
    ("STEP", 'replace-optimizer{to="lamb{lr=-1}"}', "option 'lr' is a number, zero at least, not -1"),
    ("mlp", "replace-optimizer{to=lion,match=[hiden.weight]}", "did you mean 'hidden.weight'"),
    ("mlp", "monitor{match=[hiden.*]}", r"no weight has the name 'hiden\.\*'.*did you mean"),
    ("STEP", "monitor{what=[gradient-nrm]}", "cannot be gradient-nrm.*did you mean 'gradient-norm'"),
    ("STEP", "monitor{what=[]}", "measures nothing"),
    ("STEP", "monitor{what=[noise-scale]}", "a window has one: add gradient-accumulation"),
    ("STEP", "monitor,monitor{every=2}", "asked for twice"),
    ("STEP", "monitor,adasum", "leave one of the two out"),
    ("STEP", "monitor,data-parallel,shard-optimizer", "leave one of the two out"),
    ("mlp", "weight-average|weight-average", "averages its weights already"),
    ("STEP", "weight-average{kind=swa,decay=0.9}", "kind=swa takes the plain mean"),
    ("STEP", "weight-average,adasum", "adasum would change them after that"),
    ("STEP", "data-parallel{fusion=-1}", "option 'fusion'"),
    ("STEP", "freeze{match=[u]}", "no trained weight has the name 'u'"),
    ("STEP", "gradient-freeze{groups=2,total_steps=8}|freeze{match=[v]}", "ask for both in one pipeline"),
    ("STEP", "weight-average{match=[u]}", "no weight has the name 'u'"),
    (
        "mixed_precision/mixed_precision.ir",
        "mixed-precision{keep=no}",
        "such are: net/first-Dense, net/tanh-Tanh, net/second",
    ),
    ("mixed_precision/mixed_precision.ir", "mixed-precision{level=O0}", "nothing in the program computes in half"),
    ("mixed_precision/mixed_precision.ir", "mixed-precision{level=O0,keep=x}", "and takes no other option"),
    ("mixed_precision/mixed_precision.ir", "mixed-precision{level=O0,loss=same}", "and takes no other option"),
    ("mixed_precision/mixed_precision.ir", "mixed-precision|mixed-precision{error=1,data=x.npz}", "in half pre"),
    ("mixed_precision/mixed_precision.ir", "mixed-precision{error=0.1}", "error=0.1 needs data=FILE.npz"),
    ("mixed_precision/mixed_precision.ir", "mixed-precision{data=x.npz}", "which is not given"),
    ("mixed_precision/mixed_precision.ir", "mixed-precision{dtype=bfloat16}", "no bfloat16 kernels .* on cpu"),
    ("mixed_precision/mixed_precision.ir", "mixed-precision|mixed-precision", "is in half precision already .Cast"),
    (
        "STEP",
        "gradient-accumulation{steps=2},overflow-check{policy=skip-micro},monitor{what=[noise-scale]}",
        "needs the gradients of all micro-batches",
    ),
    ("HALF_LOSS", "mixed-precision", "has no backward part: it is not a training graph"),
    ("batch_size.ir", "batch-size{size=4}", "step: its batch is 4 already"),
    ("STEP", "batch-size{}", "give either size or dynamic=true"),
    ("STEP", "batch-size{size=3,dynamic=true}", "give either size or dynamic=true"),
]


@pytest.mark.parametrize(("what", "pipelines", "message"), REFUSED)
def test_what_a_pass_refuses(what: str, pipelines: str, message: str) -> None:
    """One clear error; the pipelines run one after the other."""
    with pytest.raises(Error, match=message):
        compiled(what, *pipelines.split("|"))


@pytest.mark.parametrize(
    ("what", "pipelines", "passes"),
    [
        ("STEP", "overflow-check", ["overflow-check"]),
        ("data_parallel_export.ir", "overflow-check", ["overflow-check", "data-parallel"]),
        ("STEP", "loss-scale", ["loss-scale", "overflow-check"]),
        ("STEP", "loss-scale{mode=static}", ["loss-scale"]),
        ("STEP", "overflow-check|loss-scale", ["overflow-check", "loss-scale"]),
        ("STEP", "group-loss-scale", ["group-loss-scale", "overflow-check"]),
        ("STEP", "overflow-check|group-loss-scale", ["overflow-check", "group-loss-scale"]),
        ("mixed_precision/mixed_precision.ir", "mixed-precision", ["mixed-precision", "loss-scale", "overflow-check"]),
        ("mixed_precision/mixed_precision.ir", "mixed-precision{loss_scale=false}", ["mixed-precision"]),
        ("STEP", "adasum", ["adasum"]),
        ("STEP", "adasum{devices_per_group=2}", ["data-parallel", "adasum"]),
        ("data_parallel_export.ir", "adasum", ["data-parallel", "adasum"]),
    ],
)
def test_what_a_pass_brings_along(what: str, pipelines: str, passes: list[str]) -> None:
    assert [report.name for report in compiled(what, *pipelines.split("|")).reports] == passes


@pytest.mark.parametrize(("given", "limit"), [("", 50), ("{max_skipped=7}", 7), ("{max_skipped=0}", None)])
def test_how_many_updates_may_be_skipped(given: str, limit: int | None) -> None:
    assert compiled("STEP", f"overflow-check{given}").schedule.max_skipped == limit


def test_results_that_a_pass_named_keep_their_names_in_a_later_compilation() -> None:
    """The session finds the number of skipped cycles by its name."""
    later = compiled("STEP", "overflow-check{max_skipped=2}", "gradient-accumulation{steps=2}")
    assert later.graphs["apply"].outputs[-1] == "skipped_cycles"
    assert later.schedule.max_skipped == 2
