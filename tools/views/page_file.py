"""The pages: the style sheets, scripts and templates in ``page/``, and what is made of them.

Names come from files and may hold anything: the templates escape them, data stands in scripts that are no code, and a
content security policy lets no script run but a page's own, known by their hashes.
"""

from __future__ import annotations

import hashlib
import json
from base64 import b64encode
from functools import cache
from importlib.resources import files
from typing import Any

from ...ir.analysis.compare.diff_text import SIGNS, made_by
from ...ir.core.wording import agreed, counted, print_bytes, print_count, spelled
from .. import cli
from ..verification.report import numbers_of
from .shown import role_in_words


@cache
def page_file(name: str) -> str:
    """The text of a file in ``page/``, without references to source maps, which no page brings along."""
    text = files(__package__).joinpath("page", *name.split("/")).read_text(encoding="utf-8")
    return "\n".join(line for line in text.split("\n") if not line.startswith("//# sourceMappingURL"))


def rendered(template: str, **values: Any) -> str:
    """The template of that name in ``page/`` with these values, in which names are escaped and harmless."""
    return str(_environment().get_template(template).render(**values))


@cache
def _environment() -> Any:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(page_file), autoescape=True, trim_blocks=True, lstrip_blocks=True,
        undefined=jinja2.StrictUndefined, finalize=_harmless,
    )  # fmt: skip
    environment.filters.update(
        bytes=print_bytes,
        count=print_count,
        counted=counted,
        agreed=agreed,
        made_by=made_by,
        numbers=numbers_of,
        role=role_in_words,
        spelled=spelled,
    )
    environment.globals.update(signs=SIGNS)
    return environment


def _harmless(value: Any) -> Any:
    """Names in a page's text; what is markup or a script already stays as it is, to the character."""
    return cli.harmless(value) if type(value) is str else value


def policy_of(scripts: list[str]) -> str:
    """A content security policy by which nothing runs but these scripts, and nothing is loaded."""
    hashes = (b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{h}'" for h in hashes)
    return f"default-src 'none'; style-src 'unsafe-inline'; script-src {allowed}; base-uri 'none'; form-action 'none'"


def embedded(document: Any) -> str:
    """JSON that can stand inside a script element, whatever its strings hold."""
    text = cli.harmless(json.dumps(document, ensure_ascii=False, separators=(",", ":")))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
