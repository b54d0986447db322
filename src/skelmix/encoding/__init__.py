"""Real vector <-> integers modulo m: one file per step, each step beside its inverse, in data order."""
