"""What a participant sends and what the aggregator makes of the sum."""
