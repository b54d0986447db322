"""Data sets for studies and examples, and how their records are dealt to participants."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skelmix.exports import lazily

if TYPE_CHECKING:
    from skelmix.datasets.catalogue import Images, load
    from skelmix.datasets.hospital_files import hospitals
    from skelmix.datasets.partition import (
        Partition,
        by_id,
        equal_shares,
        label_skew,
        one_record_each,
        read_ids,
    )
    from skelmix.datasets.shakespeare import load_speakers

__all__ = [
    "Images",
    "Partition",
    "by_id",
    "equal_shares",
    "hospitals",
    "label_skew",
    "load",
    "load_speakers",
    "one_record_each",
    "read_ids",
]

_HOMES = {
    "catalogue": ("Images", "load"),
    "hospital_files": ("hospitals",),
    "partition": ("Partition", "by_id", "equal_shares", "label_skew", "one_record_each", "read_ids"),
    "shakespeare": ("load_speakers",),
}

__getattr__ = lazily(__name__, _HOMES)
