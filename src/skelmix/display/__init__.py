"""How results are shown: facts as an aligned table in a terminal, and as one self-contained page."""

from typing import TYPE_CHECKING

from skelmix.display.facts import Fact, Section
from skelmix.display.text import card_text
from skelmix.exports import lazily

if TYPE_CHECKING:
    from skelmix.display.document import Document, Figure, Table, plotly_script

__all__ = ["Document", "Fact", "Figure", "Section", "Table", "card_text", "plotly_script"]

__getattr__ = lazily(__name__, {"document": ("Document", "Figure", "Table", "plotly_script")})
