"""An app in the shape of Flower's PyTorch quickstart, written for the test of the guide's diff."""
