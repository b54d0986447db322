"""A convolutional network trained on MNIST with 6 bits per weight, (ε, δ)-private for every image's owner.

    python examples/train_cnn_6_bits.py [--rounds 60] [--cohort 240] [--participants 60000] [--epsilon 3]

Under two minutes. More rounds, better model: `skelmix train --model cnn --bits 6` is the full run.
"""

# %% Data: every participant holds one image
import argparse
from dataclasses import replace

import torch
from torch.nn.functional import cross_entropy

import skelmix as sk
from skelmix.datasets import load
from skelmix.federated import Accuracy, RoundRecord, Trainer, build_model, clients_of

options = argparse.ArgumentParser()
options.add_argument("--rounds", type=int, default=60)
options.add_argument("--cohort", type=int, default=240)
options.add_argument("--participants", type=int, default=60_000)
options.add_argument("--epsilon", type=float, default=3.0)
options.add_argument("--data", default="mnist", help="mnist, fashion-mnist or a directory of idx files")
chosen = options.parse_args()

images = load(chosen.data)
images = replace(
    images,
    train_images=images.train_images[: chosen.participants],
    train_labels=images.train_labels[: chosen.participants],
)
clients = clients_of(images)
height, width = images.train_images.shape[1:]
model = build_model("cnn", pixels=height * width, classes=images.classes)

# %% The plan: 6 bits per weight on the wire
plan = sk.Plan.for_model(
    model,
    sk.PrivacyTarget(epsilon=chosen.epsilon, delta=1e-5),
    clip_norm=1.0,
    bits=6,
    rounds=chosen.rounds,
    bound="rdp",
    cohort=sk.Cohort(expected=chosen.cohort, population=len(clients)),
)
print(plan)


# %% Training
def print_round(trainer: Trainer, record: RoundRecord) -> None:
    if record.accuracy is not None:
        notes = record.diagnostics  # not private: for data that are public, as here
        print(
            f"round {record.round:>4}: accuracy {record.accuracy:.4f}, "
            f"{notes.wrapped_fraction or 0:.2%} of coordinates wrapped, {notes.seconds:.2f} s"
        )


trainer = Trainer(
    model,
    cross_entropy,
    clients,
    plan,
    torch.optim.Adam(model.parameters(), lr=0.01),
    evaluate=Accuracy(images),
    evaluate_every=max(1, chosen.rounds // 6),
    callbacks=[print_round],
    diagnostics=True,
)
result = trainer.run()

# %% What was promised and what came out
print()
print(str(result.report))
print(f"\naccuracy {result.accuracy:.4f} with 6 bits per weight; {result.seconds_per_round:.2f} s per round")
