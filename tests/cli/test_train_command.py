"""`skelmix train` and `skelmix data` as a user meets them, on made-up images."""

import csv
import json
import signal
import subprocess
import sys
import time

import pytest

from helpers.command import in_process, skelmix
from helpers.idx_files import two_kinds_of_images
from skelmix.cli.train_progress import after_the_round


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    return two_kinds_of_images(tmp_path_factory.mktemp("idx"))


def words(images, *more):
    small = ("--rounds", 4, "--epsilon", 20, "--delta", 1e-2, "--bound", "rdp", "--evaluate-every", 2)
    return ("train", "--dataset", images, *small, "--json", *more)


def test_a_run_prints_one_object_and_can_be_told_from_a_private_one(images, tmp_path):
    done = skelmix(*words(images, "--cohort", 40, "--seed", 3, "--baseline", "dpsgd-rdp"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    keys = "accuracy epsilon delta rounds seconds seconds_per_round wrapped_fraction report"
    assert set(keys.split()) <= set(found)
    assert not found["private"]
    assert "NOT PRIVATE" in done.stderr
    assert "-differential privacy over 4 rounds" in done.stderr  # the card
    assert [run["mechanism"] for run in found["runs"]] == ["smm", "gaussian"]
    assert found["runs"][1]["bound"] == "rdp"
    both = found["runs"][1]["epsilon_by_bound"]
    assert both["pld"] < both["rdp"] <= 20


def test_a_run_of_several_seeds_through_the_protocol_with_a_baseline_can_be_resumed(images, tmp_path):
    more = ("--seeds", "1,2", "--baseline", "dpsgd-rdp", "--secure", "protocol")
    done = skelmix(*words(images, "--cohort", 40, "--directory", "all", *more), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    directories = sorted(path.name for path in (tmp_path / "all").iterdir())
    assert directories == ["gaussian-seed1", "gaussian-seed2", "smm-seed1", "smm-seed2"]
    lines = (tmp_path / "all" / "smm-seed2" / "metrics.csv").read_text().splitlines()
    assert lines[0] == "round,private,opened,accuracy,epsilon,clip_norm,within"
    assert all(line.split(",")[:3] == [f"{n}", "False", "True"] for n, line in enumerate(lines[1:], 1))
    assert not list((tmp_path / "all").rglob("diagnostics*"))
    first = json.loads(done.stdout)["runs"][1]
    again = skelmix("train", "--resume", "all/smm-seed2", "--json", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    same = ("accuracy", "epsilon", "rounds", "private", "diagnostics")
    assert [json.loads(again.stdout)[name] for name in same] == [first[name] for name in same]


def test_rounds_that_fail_are_refused_beforehand_or_told_and_a_run_of_them_is_an_error(images, tmp_path):
    setting = ("--cohort", 40, "--dropout-rate", 0.4, "--directory", "run", "--seed", 1)
    done = skelmix(*words(images, *setting), cwd=tmp_path)
    assert done.returncode == 2
    assert "all rounds would fail at a dropout rate of 0.4" in done.stderr
    assert "--allow-failing-rounds" in done.stderr
    assert not (tmp_path / "run").exists(), "nothing was charged"
    done = skelmix(*words(images, *setting, "--allow-failing-rounds"), cwd=tmp_path)
    assert done.returncode == 2
    printed = " ".join(done.stderr.split())
    for number in range(1, 5):
        assert f"round {number} gave no sum, too few survived: its cost stays charged" in printed
    assert "none of 4 rounds gave a sum" in printed


def test_a_run_of_broken_vectors_only_ends_with_exit_code_2_after_its_files_are_written(images, tmp_path):
    (tmp_path / "own.py").write_text(
        "import torch\n"
        "class Broken(torch.nn.Linear):\n"
        "    def forward(self, inputs):\n"
        "        return super().forward(torch.where(inputs == 0, inputs, torch.nan))\n"
        "def network():\n"
        "    return Broken(16, 10)\n"
    )
    setting = ("--cohort", 40, "--model", "own:network", "--directory", "run", "--diagnostics")
    done = skelmix(*words(images, *setting), cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "every vector was NaN or infinite" in done.stderr
    assert "vectors counted as zero, being NaN or infinite" in done.stderr
    assert "Traceback" not in done.stderr
    assert {"model.pt", "report.html", "privacy.json"} <= {path.name for path in (tmp_path / "run").iterdir()}


def test_an_adaptive_clip_norm_moves_and_is_written_down(images, tmp_path):
    more = ("--clip", "adaptive", "--clip-start", 50, "--clip-rate", 1, "--clip-quantile", 0.6, "--lr-decay")
    done = skelmix(*words(images, "--cohort", 40, "--directory", "run", *more), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    with (tmp_path / "run" / "metrics.csv").open() as file:
        norms = [float(row["clip_norm"]) for row in csv.DictReader(file)]
    assert norms[0] == 50
    assert norms == pytest.approx([50, 25, 12.5, 6.25]), "no vector is that long: it is halved"
    plan = json.loads((tmp_path / "run" / "plan.json").read_text())
    assert plan["adaptive_clip"] == {"start": 50, "rate": 1, "quantile": 0.6, "weight": 0.1}
    assert "Clip norm" in (tmp_path / "run" / "report.html").read_text()
    assert json.loads((tmp_path / "run" / "config.json").read_text())["lr_decay"] == 4


def test_an_interrupted_run_ends_after_its_round_and_says_how_to_go_on(images, tmp_path):
    command = words(images, "--cohort", 40, "--rounds", 100_000, "--directory", "run")
    ledger = tmp_path / "run" / "ledger.jsonl"
    with subprocess.Popen(
        [sys.executable, "-m", "skelmix", *map(str, command)], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            deadline = time.monotonic() + 120
            while not ledger.exists() or ledger.read_bytes().count(b"\n") < 5:
                assert process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.05)
            process.send_signal(signal.SIGINT)
            said = process.communicate(timeout=120)[1]
        finally:
            process.kill()
    assert process.returncode == 130
    assert "stopping after this round" in said
    assert "skelmix train --resume run" in said
    saved = int(said.split("stopped after ")[1].split()[0])
    assert saved == ledger.read_bytes().count(b"\n") - 1, "the round at hand was ended"
    assert (tmp_path / "run" / "checkpoint.pt").exists()


def test_a_second_interrupt_does_not_wait_for_the_round():
    before = signal.getsignal(signal.SIGINT)
    with after_the_round() as stop:
        stop(None, None)
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            stop(None, None)
    assert signal.getsignal(signal.SIGINT) is before


def test_an_id_column_makes_the_participants(images, tmp_path):
    column = tmp_path / "ids.txt"
    column.write_text("".join(f"user-{i % 20}\n" for i in range(80)))
    done = skelmix(*words(images, "--ids", column, "--cohort", 10, "--directory", "run"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "run" / "plan.json").read_text())["cohort"]["population"] == 20


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (("--ids", "short.txt"), "one id for each of the 80 records"),
        (("--ids", "gap.txt"), "line 2 is blank"),
        (("--ids", "nowhere.txt"), "cannot be read"),
        (
            ("--ids", "short.txt", "--records-per-participant", 2),
            "leave out records_per_participant and skew",
        ),
        (("--baseline", "sgd"), "dpsgd"),
        (("--seeds", "a"), "whole numbers"),
        (("--seeds", "1,1"), "give each once"),
        (("--skew", 0.5), "no labels to skew"),
        (("--resume", "run"), "a resumed run keeps its settings"),
        (("--model", "perceptron"), "choose mlp, cnn"),
        (("--model", "characters"), "go together"),
        (("--recipe", "best"), "the recipe best is known for mnist, fashion-mnist, cifar-10, shakespeare"),
        (("--recipe", "good"), "paper, best"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(images, tmp_path, monkeypatch, more, says):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "short.txt").write_text("a\nb\n")
    (tmp_path / "gap.txt").write_text("a\n\nb\n")
    done = in_process(*words(images, "--cohort", 40, *more))
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "runs").exists()


def test_data_says_what_is_here_and_refuses_files_that_are_not_the_published_ones(images, tmp_path):
    cache = tmp_path / "cache"
    (cache / "mnist").mkdir(parents=True)
    for file in images.iterdir():
        (cache / "mnist" / file.name).write_bytes(file.read_bytes())
    environment = {"SKELMIX_CACHE": str(cache), "PATH": "", "HOME": str(tmp_path)}
    listed = skelmix("data", "list", "--json", cwd=tmp_path, env=environment)
    assert listed.returncode == 0, listed.stderr
    assert str(cache) in json.loads(listed.stdout)["mnist"]["train-images"]
    verified = skelmix("data", "verify", "mnist", cwd=tmp_path, env=environment)
    assert verified.returncode == 2
    assert "SHA-256" in verified.stderr
    assert "Traceback" not in verified.stderr


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (("--clip", "adaptiv"), "clip = 'adaptiv'"),
        (("--clip-norm", 0), "clip_norm = 0"),
        (("--clip-quantile", 0.5), "give --clip adaptive too"),
        (("--epsilon", -1), "epsilon = -1"),
        (("--optimizer", "sgdm"), "optimizer = 'sgdm'"),
        (("--lr", 0), "lr = 0"),
    ],
    ids=lambda value: "".join(map(str, value)) if isinstance(value, tuple) else "",
)
def test_mistakes_are_found_before_any_data_is_read(wrong, says, monkeypatch):
    monkeypatch.setattr("skelmix.federated.runs.Prepared", None)
    assert says in in_process("train", "--recipe", "best", *wrong).stderr
