"""The adapter to Flower."""
