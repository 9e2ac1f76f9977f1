"""MkDocs' hook (mkdocs.yml): the site has pages and results outside docs/ too, and links to them work.

On GitHub a page links to `../benchmarks/learning.md`. In the site that file lies beside the pages of docs/. A link to
code, or to a folder, becomes its text: the site does not hold the code.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
OUTSIDE = [
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "benchmarks/*.md",
    "benchmarks/*.json",
    "benchmarks/figures/*",
]
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((?!https?:|mailto:|#)([^)#\s]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: Any) -> Files:
    """Adds the files outside docs/, each by its path in the repository."""
    for path in sorted(path for pattern in OUTSIDE for path in ROOT.glob(pattern)):
        uri = path.relative_to(ROOT).as_posix()
        files.append(File.generated(config, uri, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, files: Files, **_: Any) -> str:
    """Turns links by paths of the repository into links of the site."""
    source = page.file.src_uri
    here = source if (ROOT / source).is_file() else f"docs/{source}"

    def rewritten(link: re.Match[str]) -> str:
        text, target, anchor = link[1], link[2], link[3] or ""
        path = posixpath.normpath(posixpath.join(posixpath.dirname(here), target))
        uri = "index.md" if path == "README.md" else path.removeprefix("docs/")
        if files.get_file_from_path(uri):
            return f"[{text}]({posixpath.relpath(uri, posixpath.dirname(source) or '.')}{anchor})"
        return text if (ROOT / path).exists() else link[0]

    return _LINK.sub(rewritten, markdown)
