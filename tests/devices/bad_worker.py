"""A worker (`worker.py`) whose programs end it, each in the way that its pipeline is called."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

folder = Path(sys.argv[2])
for _, pipeline, _ in json.loads((folder / "jobs.json").read_text())["jobs"]:
    with open(folder / "outcomes.jsonl", "a") as outcomes:
        outcomes.write('{"begun": true}\n')
        outcomes.flush()
        print("last words", flush=True)
        if pipeline == "abort":
            os.abort()
        if pipeline == "endless":
            time.sleep(1000)
        if pipeline == "exit":
            os._exit(3)
        outcomes.write('{"end": "ran", "message": "", "seconds": 0}\n')
