"""Fixtures that run a test for every mechanism."""

import pytest

from helpers.every_mechanism import ALL, DISTRIBUTED


@pytest.fixture(params=ALL.values(), ids=ALL.keys())
def mechanism(request):
    return request.param


@pytest.fixture(params=DISTRIBUTED.values(), ids=DISTRIBUTED.keys())
def distributed(request):
    return request.param
