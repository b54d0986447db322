"""Answers the page's first question on import: for the process from which the planner's workers are forked.

They start with all modules and kernels loaded, and know what this answer needed.
"""

from skelmix.explore.answers import answer
from skelmix.explore.settings import Settings

answer(Settings.read({}))
