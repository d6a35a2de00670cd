"""What the tests of the observer share."""

import pytest


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    """Small tensors on a busy machine: threads would wait for each other."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
