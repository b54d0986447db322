"""A private histogram over many parties: 2,000 phones, one secret each, and nobody to trust with them.

Each phone sends one vector with a single 1, coded into a few bits and masked; secure aggregation adds them
up. What comes out is the count of each answer, with noise that hides any one phone.

    python examples/private_histogram.py [--parties 2000] [--answers 32] [--epsilon 1] [--plain]

Under two minutes; --plain skips the protocol of secure aggregation, which gives the same number.
"""

# %% The parties and their secrets
import argparse

import numpy as np

import skelmix as sk

options = argparse.ArgumentParser()
options.add_argument("--parties", type=int, default=2_000)
options.add_argument("--answers", type=int, default=32)
options.add_argument("--epsilon", type=float, default=1.0)
options.add_argument("--plain", action="store_true")
chosen = options.parse_args()

public = np.random.default_rng(0)  # test data: a Zipf law over the answers
weights = 1 / np.arange(1, chosen.answers + 1)
answers = public.choice(chosen.answers, size=chosen.parties, p=weights / weights.sum())

# %% What is promised, before anything is sent
# One answer each: a vector with a single 1 has norm 1. A tenth of the phones may vanish.
plan = sk.plan(
    sk.PrivacyTarget(epsilon=chosen.epsilon, delta=0.1 / chosen.parties**1.5),
    dimension=chosen.answers,
    clip_norm=1.0,
    bits=16,
    bound="gdp",
    cohort=sk.Cohort.everyone(chosen.parties, dropout_tolerance=0.1),
)
print(plan)


# %% The sum
def vectors():
    """One row per party, made when it is needed: nobody holds all of them."""
    for answer in answers:
        row = np.zeros(chosen.answers)
        row[answer] = 1.0
        yield row


result = sk.private_sum(vectors(), plan, secure="simulated" if chosen.plain else "protocol")

# %% The result: noise added, then rounded; both are post-processing and cost nothing
counts = np.clip(np.rint(result.estimate), 0, chosen.parties).astype(int)
true = np.bincount(answers, minlength=chosen.answers)
deviation = plan.predicted.mse**0.5
print(f"\n{'answer':>6} {'private':>8} {'true':>6}   (standard deviation {deviation:.1f})")
for answer in range(min(10, chosen.answers)):
    print(
        f"{answer:>6} {counts[answer]:>8} {true[answer]:>6}   {'#' * (40 * counts[answer] // counts.max())}"
    )
worst = float(np.abs(counts - true).max())
print(f"largest error {worst:.0f} of {chosen.parties} parties")
