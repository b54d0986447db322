"""MNIST on Flower with distributed differential privacy."""
