"""Writes the outputs into docs/proof.md, as docs/make_ten_nodes.py does into its page.

python docs/make_proof.py      # `--check` writes nothing, and fails where the page is not what it would write
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from make_ten_nodes import made

PAGE = Path(__file__).parent / "proof.md"


def main() -> None:
    old = PAGE.read_text(encoding="utf-8")
    new = made(old)
    if "--check" in sys.argv[1:]:
        if new != old:
            sys.exit("docs/proof.md is not current: python docs/make_proof.py writes it anew")
        return
    PAGE.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main()
