"""README and the first page of the docs say at once whom it is for, both ε, what is proved and assumed."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_the_first_screen_says_who_both_epsilons_proved_and_assumed(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    screen = text[: text.index("![")]  # before the first picture
    assert len(screen.splitlines()) <= 30
    for words in (
        "a PyTorch engineer", "an analyst", "a Flower engineer", "not for you", "`epsilon`",
        "`epsilon_aggregator`", "Proved:", "Assumed:",
    ):  # fmt: skip
        assert words in screen, words
