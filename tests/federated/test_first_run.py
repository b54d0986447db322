"""A newcomer's first run: own arrays are taken, mistakes cost nothing, and the model can be had."""

import csv
import json
import sys
from contextlib import closing

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

import skelmix as sk
from skelmix.display import plotly_script
from skelmix.errors import BudgetExhausted, InvalidInput, MissingExtra
from skelmix.federated import Clients, Trainer, print_progress
from skelmix.planning import privacy_report

PEOPLE, ROUNDS = 40, 4


def network():
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(2 * 4 * 4, 3))


def images(dtype=np.float32):
    return np.random.default_rng(0).random((PEOPLE, 1, 6, 6)).astype(dtype)


LABELS = np.arange(PEOPLE) % 3


@pytest.fixture(scope="module")
def plan():
    weights = sum(p.numel() for p in network().parameters())
    return sk.plan(
        sk.PrivacyTarget(20.0, 1e-3),
        dimension=weights,
        bits=16,
        rounds=ROUNDS,
        bound="rdp",
        cohort=sk.Cohort(20, PEOPLE),
    )


def trainer(plan, *, model=None, people=None, optimizer=None, loss=cross_entropy, **options):
    model = network() if model is None else model
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1)
    return Trainer(model, loss, people or Clients(images(), LABELS), plan, optimizer, **options)


def test_what_the_report_needs_is_missed_before_anything_is_charged(plan, tmp_path, monkeypatch):
    plotly_script.cache_clear()
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    with closing(trainer(plan, run_directory=tmp_path)) as run:
        with pytest.raises(MissingExtra, match="plotly"):
            run.run()
        assert run.ledger.charged == 0


@pytest.mark.parametrize("evaluate", [None, lambda model: 0.25])
def test_the_report_speaks_of_accuracy_only_where_it_was_measured(plan, tmp_path, evaluate):
    trainer(plan, run_directory=tmp_path, evaluate=evaluate, evaluate_every=2).run()
    page = (tmp_path / "report.html").read_text().split("<body>")[1]
    assert ("Test accuracy" in page) == ("test data" in page) == (evaluate is not None)
    assert "Privacy spent" in page


def test_a_single_accuracy_is_stated_and_not_drawn(plan, tmp_path):
    trainer(plan, run_directory=tmp_path, evaluate=lambda model: 0.25, evaluate_every=ROUNDS).run()
    page = (tmp_path / "report.html").read_text().split("<body>")[1]
    assert "25.00%" in page
    assert "Test accuracy" not in page


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_numpy_arrays_are_taken(plan, kind, dtype):
    people = Clients(images(kind), LABELS.astype(dtype))
    assert (people.inputs.dtype, people.targets.dtype) == (torch.float32, torch.int64)
    assert trainer(plan, people=people).step().round == 1


def test_arrays_that_may_not_be_written_are_copied_without_a_warning():
    given = images()
    given.flags.writeable = False
    assert torch.equal(Clients(given, LABELS).inputs, torch.from_numpy(images()))


def test_a_conversion_that_loses_digits_is_said(caplog):
    Clients(images(np.float64), LABELS)
    assert "float64 is converted to float32" in caplog.text


class Pairs:
    def __len__(self):
        return PEOPLE

    def __getitem__(self, place):
        return torch.from_numpy(images()[place]), int(LABELS[place])


@pytest.mark.parametrize(
    "dataset", [TensorDataset(torch.from_numpy(images()), torch.from_numpy(LABELS)), Pairs()]
)
def test_a_data_set_of_pairs_is_taken(plan, dataset):
    people = Clients(dataset)
    assert people.inputs.shape == (PEOPLE, 1, 6, 6)
    assert people.targets.tolist() == LABELS.tolist()


def test_what_cannot_be_taken_is_refused_with_the_remedy():
    with pytest.raises(InvalidInput, match=r"Clients\(loader.dataset\)"):
        Clients(DataLoader(Pairs()))
    with pytest.raises(InvalidInput, match="without targets"):
        Clients(images())
    with pytest.raises(InvalidInput, match="not numbers"):
        Clients(images(), np.array(["cat"] * PEOPLE))


def mistakes():
    other = network()
    return {
        "flat records": ({"people": Clients(images().reshape(PEOPLE, -1), LABELS)}, "does not take records"),
        "labels too large": ({"people": Clients(images(), LABELS + 1)}, "with the target 3"),
        "labels of another shape": ({"people": Clients(images(), LABELS[:, None])}, "the loss does not take"),
        "labels that are real numbers": (
            {"people": Clients(images(), LABELS.astype(np.float32))},
            "the loss does not take",
        ),
        "another model's optimiser": (
            {"optimizer": torch.optim.Adam(other.parameters())},
            "optimizer does not hold",
        ),
        "an optimiser that needs a closure": (None, "needs closure"),
        "a loss without a gradient": (
            {"loss": lambda out, to: (out.argmax(1) != to).long().sum()},
            "not a tensor of real",
        ),
        "a loss of each record": ({"loss": nn.CrossEntropyLoss(reduction="none")}, "not one number"),
        "a loss of real numbers on labels": ({"loss": nn.MSELoss()}, "Using a target size"),
        "arrays in place of clients": ({"people": (images(), LABELS)}, r"give Clients\(inputs, targets\)"),
        "an evaluation that fails": (
            {"evaluate": lambda model: model(torch.zeros(1, 5))},
            "evaluate fails on the untrained",
        ),
        "an evaluation without a result": ({"evaluate": lambda model: None}, "evaluate fails"),
    }


@pytest.mark.parametrize("name", mistakes())
def test_a_mistake_is_found_before_anything_is_charged_or_written(plan, tmp_path, name):
    options, says = mistakes()[name]
    if options is None:
        model = network()
        options = {"model": model, "optimizer": torch.optim.LBFGS(model.parameters())}
    with pytest.raises(InvalidInput, match=says):
        trainer(plan, run_directory=tmp_path / "run", **options)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("below", ["", "seed-1"])
def test_a_file_in_place_of_the_run_directory_is_named_as_one(plan, tmp_path, below):
    (tmp_path / "run").write_text("mine")
    with pytest.raises(InvalidInput, match="run is a file: name a directory"):
        trainer(plan, run_directory=tmp_path / "run" / below)
    assert (tmp_path / "run").read_text() == "mine"


def test_a_scheduler_over_losses_or_of_another_optimiser_is_refused(plan):
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
    with pytest.raises(InvalidInput, match="needs metrics"):
        trainer(plan, model=model, optimizer=optimizer, scheduler=plateau)
    with pytest.raises(InvalidInput, match=r"scheduler is a str: it has no step\(\)"):
        trainer(plan, model=model, optimizer=optimizer, scheduler="cosine")
    foreign = torch.optim.lr_scheduler.StepLR(torch.optim.SGD(network().parameters(), lr=0.1), 1)
    with pytest.raises(InvalidInput, match="of another optimizer"):
        trainer(plan, model=model, optimizer=optimizer, scheduler=foreign)


def test_a_scheduler_that_ends_before_the_plan_is_refused(plan):
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def cycle(steps):
        return torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.2, total_steps=steps)

    with pytest.raises(InvalidInput, match=f"total_steps={plan.rounds}"):
        trainer(plan, model=model, optimizer=optimizer, scheduler=cycle(plan.rounds - 1))
    trainer(plan, model=model, optimizer=optimizer, scheduler=cycle(plan.rounds)).run()


def test_the_trial_changes_neither_weights_nor_modes_nor_torchs_random_numbers(plan):
    model = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(36, 3))
    own = sk.plan(
        plan.target, dimension=111, bits=16, rounds=ROUNDS, bound="rdp", cohort=sk.Cohort(20, PEOPLE)
    )
    before = {name: value.clone() for name, value in model.state_dict().items()}
    torch.manual_seed(5)
    state = torch.random.get_rng_state()
    trainer(own, model=model, evaluate=lambda net: float(net.eval()(torch.rand(1, 36)).detach().sum()))
    assert torch.equal(torch.random.get_rng_state(), state)
    assert all(torch.equal(model.state_dict()[name], value) for name, value in before.items())
    assert all(module.training for module in model.modules())


def test_a_directory_holds_the_model_and_all_that_the_page_promises(plan, tmp_path):
    run = trainer(plan, run_directory=tmp_path / "run", evaluate=lambda net: 0.5, evaluate_every=2)
    result = run.run()
    files = {path.name for path in (tmp_path / "run").iterdir()}
    assert files >= {
        "plan.json", "config.json", "ledger.jsonl", "checkpoint.pt", "model.pt", "metrics.csv",
        "privacy.json", "report.html",
    }  # fmt: skip
    fresh = network()
    fresh.load_state_dict(torch.load(tmp_path / "run" / "model.pt", weights_only=True))
    assert all(torch.equal(a, b) for a, b in zip(fresh.parameters(), run.model.parameters(), strict=True))
    with (tmp_path / "run" / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["round"] for row in rows] == ["1", "2", "3", "4"]
    assert float(rows[-1]["epsilon"]) == result.report.epsilon
    assert json.loads((tmp_path / "run" / "config.json").read_text())["model"] == "Sequential"
    assert json.loads((tmp_path / "run" / "privacy.json").read_text())["epsilon"] == result.report.epsilon


def test_a_directory_in_which_nothing_was_charged_can_be_used_again(plan, tmp_path):
    first = trainer(plan, run_directory=tmp_path)
    first.save()
    first.close()
    second = trainer(plan, run_directory=tmp_path)
    second.step()
    second.close()
    resumed = Trainer.resume(
        tmp_path, model := network(), cross_entropy, Clients(images(), LABELS),
        torch.optim.SGD(model.parameters(), lr=0.1),
    )  # fmt: skip
    assert resumed.ledger.charged == 1
    resumed.close()
    with pytest.raises(InvalidInput, match="rounds were charged"):
        trainer(plan, run_directory=tmp_path)


def test_a_directory_with_files_of_somebody_else_is_refused(plan, tmp_path):
    (tmp_path / "model.pt").write_text("mine")
    with pytest.raises(InvalidInput, match=r"model\.pt, but no ledger"):
        trainer(plan, run_directory=tmp_path)
    assert (tmp_path / "model.pt").read_text() == "mine"


def test_what_is_spent_so_far_is_the_accounting_of_the_charged_rounds(plan):
    seen = []
    run = trainer(plan, callbacks=[lambda own, record: seen.append(own.spent)])
    assert (run.spent.epsilon, run.spent.epsilon_aggregator, run.spent.rounds) == (0, 0, 0)
    run.run()
    assert [spent.rounds for spent in seen] == [1, 2, 3, 4]
    two = privacy_report(plan.mechanism, bound="rdp", cohort=plan.cohort, rounds=2, delta=1e-3)
    assert seen[1].epsilon == min(two.epsilon, plan.report.epsilon)
    assert seen[1].epsilon_aggregator == min(two.epsilon_aggregator, plan.report.epsilon_aggregator)
    assert (seen[3].epsilon, seen[3].epsilon_aggregator) == (
        plan.report.epsilon, plan.report.epsilon_aggregator,
    )  # fmt: skip
    assert seen[0].epsilon <= seen[1].epsilon < seen[3].epsilon
    with pytest.raises(BudgetExhausted):
        run.step()


def test_progress_is_printed_without_a_terminal(plan, capsys):
    trainer(plan, callbacks=[print_progress], evaluate=lambda net: 0.25, evaluate_every=2).run()
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(":")[0] for line in lines] == ["round 1 of 4", "round 2 of 4", "round 4 of 4"]
    assert "accuracy 0.2500, ε ≤ " in lines[-1]
    assert "(aggregator " in lines[-1]
