"""What every engine needs to run a plan round by round, without torch."""
