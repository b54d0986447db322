"""Rényi differential privacy: curves, theorems, subsampling and conversion."""
