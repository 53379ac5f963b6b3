"""Pages as a browser reads them, and what must not get into one."""

from __future__ import annotations

import hashlib
import json
from base64 import b64encode
from html.parser import HTMLParser
from typing import Any

EVIL = "</script><img src=x onerror=\\\"document.title='HACKED'\\\">'&{{7*7}}\\\\\\u2028"
"""As the text form spells it: ends scripts and attributes, and is markup, a template and a broken string literal."""


HOSTILE = f"""
program @"{EVIL}" {{
  schedule @step
  pipeline "{EVIL}"
}}
state %"{EVIL}w": float32[4] role=weight
graph @step(%"{EVIL}x": float32[4]) -> ("{EVIL}") {{
  %"{EVIL}l" = Load(%"{EVIL}w", umonad) : float32[4] scope("{EVIL}/{EVIL}/Load-op0")
  %"{EVIL}m" = Mul(%"{EVIL}x", %"{EVIL}l") {{a = "{EVIL}"}} : float32[4] scope("{EVIL}/x") origin("{EVIL}"; "{EVIL}")
  %"{EVIL}c" = "{EVIL}"(%"{EVIL}m") : float32[4] scope("{EVIL}/{EVIL}/x") origin("{EVIL}x"; "{EVIL}")
  %r = call(@"{EVIL}f", %"{EVIL}c") : float32[4]
  return %r
  func @"{EVIL}f"(%p: float32[4]) {{
    %q = Neg(%p) : float32[4]
    return %q
  }}
}}
"""


class Page(HTMLParser):
    """Elements, scripts and text of a page; fails on tags that do not match."""

    VOID = frozenset({"meta", "br", "img", "link", "input", "hr"})

    def __init__(self, source: str):
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.words = ""
        self.feed(source)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, tag
        assert self.open.pop() == tag, tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] == ["script"]:
            self.scripts.append((self.tags[-1][1], data))
        else:
            self.words += data

    def data(self, id_: str) -> Any:
        return next(json.loads(text) for attributes, text in self.scripts if attributes.get("id") == id_)


def assert_loads_nothing(page: Page, scripts: int = 4) -> None:
    for tag, attributes in page.tags:
        assert tag not in ("link", "iframe", "object", "embed", "base", "img"), tag
        assert not {"src", "srcset", "action", "background"} & attributes.keys(), tag
        assert (attributes.get("href") or "#").startswith("#")
    policy = next(a["content"] for t, a in page.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert policy.startswith("default-src 'none';")
    assert "http" not in policy
    code = [text for attributes, text in page.scripts if attributes.get("type") != "application/json"]
    for script in code:
        assert b64encode(hashlib.sha256(script.encode()).digest()).decode() in policy
        assert "sourceMappingURL" not in script
    assert len(code) == scripts
