"""Times secure rounds and plain exchanges."""
