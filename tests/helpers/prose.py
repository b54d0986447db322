"""Text that was laid out for a terminal, as one line again."""


def unwrapped(shown: object) -> str:
    """The text of anything with a `str`, its line breaks and columns made single spaces."""
    return " ".join(str(shown).split())
