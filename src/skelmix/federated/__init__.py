"""Federated training on PyTorch."""
