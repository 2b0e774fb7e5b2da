import pytest


@pytest.fixture
def computed(monkeypatch):
    """The contracts that calls of operations are bound to. PyTorch computes them."""
    from paged_calls import compute_calls
    return compute_calls(monkeypatch)
