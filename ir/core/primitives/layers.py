"""Normalisations and dropouts."""

from __future__ import annotations

from .definition import MEM, Facts, Family, Table, each, family

MOVING = (3, 4)
"""Moving mean and variance. MindSpore's signature marks gamma and beta as written too, which no kernel does: BatchNorm
leaves them alone on the CPU, and the documentation of the others names the statistics only."""

TABLE: Table = {
    "BatchNorm": Facts(Family.BATCH_NORM, writes=MOVING, statistics=MOVING, training=5, attributes=MEM),
    # Its kernel writes the statistics too, but no signature and no token say so.
    "BatchNormExt": Facts(Family.BATCH_NORM, statistics=MOVING, training=5),
    "SyncBatchNorm": Facts(Family.BATCH_NORM, writes=MOVING, statistics=MOVING, attributes=MEM, kind=1),
    **family(Family.BATCH_NORM_GRADIENT, "BatchNormGrad BatchNormGradExt SyncBatchNormGrad"),
    "InstanceNorm": Facts(writes=MOVING, statistics=MOVING, attributes=MEM, kind=1),
    **each("InstanceNormGrad Centralization", Facts(kind=1)),
    "Dropout": Facts(Family.DROPOUT, keep=1, seeds=(2, 3), random=True),
    **each("Dropout2D Dropout3D", Facts(Family.DROPOUT, keep=1, random=True)),
    **each("DropoutExt FuncDropoutExt Dropout2dExt", Facts(Family.DROPOUT, random=True)),
    "DropoutGrad": Facts(kind=1),
}
