"""Counts, means, histograms and quantiles of many parties' records, as one private sum."""
