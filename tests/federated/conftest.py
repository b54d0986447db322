"""Tests train tiny models: torch's threads would only wait for each other."""

import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def one_torch_thread():
    torch.set_num_threads(1)
