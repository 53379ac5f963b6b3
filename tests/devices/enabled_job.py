"""A process that trains on one device: `python -m tests.devices.enabled_job DEVICE WAY`, where WAY is "enabled", in the
script's own cell, or "session"."""

from __future__ import annotations

import os
import sys

import mindspore as ms

import boost_compile as bc

PIPELINE = "gradient-accumulation{steps=2},overflow-check,clip-gradients{limit=1.0}"


def main() -> None:
    device, way = sys.argv[1:]
    ms.set_device(device)
    from tests.native import tensors  # these make Tensors, after which no device can be chosen
    from tests.networks import CASES, build

    case = CASES["mlp"]
    cell, batches = build(case).train_step, case.batches(4)
    ms.set_device(device)  # networks of the zoo are built for a CPU
    if way == "enabled":
        with bc.enable(PIPELINE, cell=cell) as enabled:
            for batch in batches:
                cell(*tensors(batch))
        assert enabled.program.target == device.lower()
    else:
        program = bc.compile(bc.capture(cell, *tensors(batches[0])), PIPELINE, target=device.lower())
        session = bc.Session(program, device=device)
        for batch in batches:
            session.step(*batch)
    print("trained", flush=True)
    os._exit(0)  # the stand-ins do not know how a device is given back


if __name__ == "__main__":
    main()
