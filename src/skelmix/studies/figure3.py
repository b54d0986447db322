"""Figure 3 of the paper: training on Fashion-MNIST under every mechanism, and accuracy against bits."""

from skelmix.studies.figure2 import training_study

STUDY = training_study("figure3", "Figure 3: training on Fashion-MNIST", "fashion-mnist")
