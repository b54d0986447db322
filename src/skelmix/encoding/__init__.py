"""Real vector <-> integers modulo m: one file a step, each step beside its inverse, in data order."""
