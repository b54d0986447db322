"""Three hospitals that answer questions on a fleet in one process."""

from __future__ import annotations

import pytest

from helpers.parties import Hospitals, planned
from skelmix.datasets.hospital_files import hospitals
from skelmix.flower.desk import Desk
from skelmix.mechanisms.silo import SiloMechanism


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return hospitals(tmp_path_factory.mktemp("stays"), count=3, records=300)


@pytest.fixture(scope="module")
def plan():
    return planned()


@pytest.fixture
def parties(tmp_path, fleet, files):
    def make(**options):
        return Hospitals(tmp_path / f"parties-{len(list(tmp_path.iterdir()))}", fleet, files, **options)

    return make


@pytest.fixture
def unrehearsed(monkeypatch):
    """Parties compute nothing but answers from their own files."""
    monkeypatch.setattr(Desk, "rehearse", lambda *_: None)


@pytest.fixture
def sent(monkeypatch, unrehearsed):
    """Every message that a party encoded."""
    seen = []
    original = SiloMechanism.encode_silo

    def watched(self, silo, **options):
        seen.append(original(self, silo, **options))
        return seen[-1].copy()

    monkeypatch.setattr(SiloMechanism, "encode_silo", watched)
    return seen
