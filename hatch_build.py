"""The README as a package index shows it, where links and pictures of this repository lead nowhere.

With `Source` in `[project.urls]` they become addresses there; without it pictures are left out, and links
become plain text.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

PICTURE = re.compile(r"!\[([^\]]*)\]\((?!https?://)([^)]+)\)\n*")
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((?!https?://|#)([^)]+)\)")


def for_an_index(readme: str, source: str | None) -> str:
    """The text with no relative address left in it; source: where the repository can be seen, if anywhere."""
    if source is None:
        return LINK.sub(r"\1", PICTURE.sub("", readme))
    place = source.rstrip("/")
    readme = PICTURE.sub(rf"![\1]({place}/raw/HEAD/\2)\n\n", readme)
    return LINK.sub(rf"[\1]({place}/blob/HEAD/\2)", readme)


class IndexReadme(MetadataHookInterface):
    """Gives the package its description."""

    def update(self, metadata: dict[str, Any]) -> None:
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        source = metadata.get("urls", {}).get("Source")
        metadata["readme"] = {"content-type": "text/markdown", "text": for_an_index(text, source)}
