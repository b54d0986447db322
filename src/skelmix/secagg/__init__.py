"""Secure aggregation over Z_m."""
