"""SECURITY.md promises nothing that is not there."""

import inspect
import re
from pathlib import Path

from skelmix.secagg.client import Client

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "SECURITY.md").read_text()


def test_it_sends_nobody_to_an_address_that_nobody_reads():
    assert not re.search(r"[\w.]+@[\w.]+|example\.(com|org)|TODO|placeholder", TEXT)
    assert "Report a vulnerability" in TEXT


def test_the_pages_and_parameters_that_it_names_exist():
    pages = re.findall(r"`(docs/[\w/.-]+)`", TEXT)
    assert len(pages) >= 2
    assert all((ROOT / page).is_file() for page in pages)
    assert "`Client(minimum_settings=…)`" in TEXT
    assert "minimum_settings" in inspect.signature(Client).parameters
    assert "accept" in inspect.signature(Client.share).parameters


def test_a_fix_is_announced_where_it_says():
    assert "Privacy impact" in (ROOT / "CHANGELOG.md").read_text()
