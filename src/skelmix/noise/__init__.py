"""Exact integer noise: no floating-point probabilities."""
