"""What mkdocs needs besides docs/ (mkdocs.yml): the pages at the root, and links that lead there."""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
FILES = {
    "README.md": "quickstart.md",  # mkdocs would take README.md for the page at the top, which is index.md
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "SECURITY.md": "SECURITY.md",
    "LICENSE": "LICENSE",
}
"""What stands at the root, by the name that it has in the site."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for name, there in FILES.items():
        files.append(File.generated(config, there, abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """In the site the pages of the root and of docs/ stand in one folder. A link into the source is its text alone."""
    if page.file.src_uri in FILES.values():
        markdown = re.sub(r"\]\(docs/", "](", markdown)
    names = "|".join(map(re.escape, FILES))
    markdown = re.sub(rf"\]\((?:\.\./)?({names})\b", lambda m: f"]({FILES[m[1]]}", markdown)
    return re.sub(r"\[([^]]*)\]\(\.\./[\w/.]+\)", r"\1", markdown)
