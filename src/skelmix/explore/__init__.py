"""`skelmix explore`: a local page on which plans are tried out, answered by the real planner."""
