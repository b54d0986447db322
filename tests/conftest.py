"""Settings of all property tests, a browser that all tests share, and a word at the end on what data the
training tests ran."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from helpers import cdp
from skelmix.datasets.catalogue import locate

# Neither chance nor a busy machine decides a run. To look for new examples: --hypothesis-profile=default
settings.register_profile(
    "repeatable", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("repeatable")


@pytest.fixture(scope="session")
def tab() -> Iterator[Any]:
    """A function that opens a tab of the one browser at an address. Skips the test without Chromium."""
    with cdp.browser() as open_tab:
        yield open_tab


def pytest_terminal_summary(terminalreporter):
    found = locate("mnist") is not None
    data = "images of MNIST" if found else "made-up records: MNIST could not be reached"
    terminalreporter.write_line(f"training tests: {data}")
