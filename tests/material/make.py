"""Writes exported training graphs, of the zoo and of `residual`, as text, for tests without MindSpore:
python -m tests.material.make

Weights and slots are zeros: tests that run a graph give it values (`tests.material.values`).
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from boost_compile.ir.core.data import BytesData
from boost_compile.ir.formats.storage.load import load
from boost_compile.ir.text import print_program

from tests.conftest import export_once, zoo_folder
from tests.material.residual import CASES
from tests.networks import export

HERE = Path(__file__).parent
NAMES = (
    *("mlp", "mlp_adam_decay", "mlp_half_compute", "lenet_bn", "lstm", "branch", "loop", "mlp_loss_scale_dynamic"),
    *("clip_global_norm", "gated_update", "hand_momentum", "meters"),
)


def main() -> None:
    folder = zoo_folder()
    files = [export_once(name, folder) for name in NAMES]
    files += [export(case, Path(tempfile.mkdtemp())) for case in CASES]
    for file in files:
        program = load(str(file))
        for variable in program.state.values():
            if variable.nbytes > 64:
                variable.data = BytesData(bytes(variable.nbytes))
        text = print_program(program)
        (HERE / f"{file.stem}.ir").write_text(text)


if __name__ == "__main__":
    main()
