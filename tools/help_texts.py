"""How the help of each command is laid out: its options in groups, by name, and what is often typed."""

from __future__ import annotations

GROUPS: dict[str, dict[str, str]] = {
    "boost-compile": {
        "Which passes": "--passes --level --config --allow-no-match --target",
        "Bigger batches": "--accumulate --reduction --weight --split --memory-budget --batch",
        "Safer steps, several ranks": "--loss-scale --check-overflow --clip-norm --centralize --data-parallel",
        "A forward graph": "--loss --optimizer --train --freeze --training-mode --dim --head",
        "Result and checks": "--output --emit --force --prove --verify --json --quiet",
        "What there is": "--list-passes --list-losses --list-optimizers --help --help-passes-authors --version",
        "Look inside": "--print-ir-before --print-ir-after --print-ir-diff --print-lowered --annotations",
        "Find out why": "--prove-each --verify-each --opt-bisect-limit --time-passes --pass-statistics --dump-pipeline",
    },
    "boost-inspect": {
        "What to show": "--format --graph --scope --around --radius --annotations",
        "Where to": "--output --force --open",
        "Compare": "--original --diff --computation",
        "The trained network": "--forward --standard --result --state --weights --batch-size --dim",
        "Check": "--doctor --data --targets --memory --check",
        "Help": "--help --version",
    },
    "boost-run": {
        "Data": "--data --batch-size --shuffle --seed",
        "Training": "--epochs --end-of-epoch --device --allow-nonfinite",
        "State": "--load --partial --set --resume --save --save-weights --save-every --save-minutes --keep "
        "--load-adapter --save-adapter",
        "Evaluation": "--val --val-split --metric --label --eval --weights",
        "Several ranks": "--ranks --hosts --rsh --restarts --check-replicas --sync --master-port --log-dir",
        "Report": "--log --check-device --print-lowered --quiet --json",
        "Help": "--help --version",
    },
    "boost-verify": {
        "What to run": "--data --seed --cycles --device --quick",
        "Result": "--verbose --bisect --store --json",
        "Help": "--help --version",
    },
    "boost-prove": {
        "What to do": "--check",
        "Result": "--verbose --store --json",
        "Help": "--help --version",
    },
    "boost-reduce": {
        "The failure": "--passes --verify --check --match --timeout",
        "Result": "--output --force --max-tests --quiet",
        "Help": "--help --version",
    },
}
"""Command -> title -> options, by their long names."""

AUTHORS = {"boost-compile": ("Look inside", "Find out why")}
"""The groups that serve who writes passes: ``--help-passes-authors`` shows them, ``--help`` does not."""

EXAMPLES: dict[str, tuple[str, ...]] = {
    "boost-compile": (
        "boost-compile model.mindir --accumulate 4     # a step for 4 micro-batches",
        "boost-compile model.mindir --loss-scale dynamic --clip-norm 1.0 -o safe.boost",
        "boost-compile net.onnx --dim batch=8 --loss mse --optimizer 'adam{lr=0.001}'",
    ),
    "boost-inspect": (
        "boost-inspect model.boost                     # graphs, schedule, passes",
        "boost-inspect model.boost --original model.mindir -o report.html",
        "boost-inspect model.mindir --diff model.boost # what a compilation changed",
    ),
    "boost-run": (
        "boost-run model.boost --data train.npz --epochs 5 --save trained.ckpt",
        "boost-run model.boost --data train.npz --epochs 9 --resume trained.ckpt",
        "boost-run model.boost --data train.npz --val-split 0.1 --metric accuracy",
    ),
    "boost-verify": (
        "boost-verify model.mindir model.boost         # on random micro-batches",
        "boost-verify model.mindir model.boost --data train.npz --cycles 4",
        "boost-verify model.mindir model.boost --json > result.json",
    ),
    "boost-prove": (
        "boost-prove model.mindir model.boost          # for all data, without running",
        "boost-prove model.mindir model.boost --json > proof.json",
        "boost-prove model.mindir model.boost --check model.boost/proof.json",
    ),
    "boost-reduce": (
        "boost-reduce model.mindir --passes less-bn    # an error of a pass",
        "boost-reduce model.mindir --passes less-bn --verify    # it trains wrong",
        "boost-reduce model.mindir --check 'boost-inspect {}' -o small.ir",
    ),
}
"""Three lines for each command, of at most 77 characters."""
