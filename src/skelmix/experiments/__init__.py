"""One file a figure or table of the paper."""
