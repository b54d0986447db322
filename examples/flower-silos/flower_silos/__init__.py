"""MNIST over silos on Flower, with privacy for every record."""
