"""Texts that stand for a missing value in people's tables."""

MISSING_TEXTS = ("", "?", "-", "na", "n/a", "nan", "null", "none")
"""In lower case, without spaces around them."""
