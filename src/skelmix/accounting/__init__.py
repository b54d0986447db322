"""Privacy bounds: numbers only."""
