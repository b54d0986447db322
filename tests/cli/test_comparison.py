"""The bars of `plan --compare`: within 80 columns, as long as the errors are large."""

import pytest

from skelmix.cli.comparison import comparison_text, relative


def row(mechanism, error, **more):
    predicted = {"effective_mse": error, "wrap_probability": 1e-5}
    return {
        "mechanism": mechanism, "bound": "composition", "rate": 1.0, "upload_bytes": 123_456_789,
        "predicted": predicted, "central_gaussian_mse": 1.0, **more,
    }  # fmt: skip


@pytest.mark.parametrize("largest", [2.0, 2000.0])
def test_bars_grow_with_the_error_and_fit_a_terminal(largest):
    rows = [row("gaussian", 1.0), row("skellam", largest / 1.5), row("cpsgd", largest)]
    refused = {"mechanism": "ddg", "error": "bits = 2: too few"}
    shown = comparison_text([*rows, refused], [row("smm", 1.5, asked_rate=1.0)])
    lines = shown.splitlines()
    assert max(map(len, lines)) <= 80
    bars = {
        name: line.count("█") for line in lines for name in ("gaussian", "skellam", "cpsgd") if name in line
    }
    assert bars["gaussian"] < bars["skellam"] < bars["cpsgd"]
    assert ("logarithmic" in lines[0]) == (largest > 10)
    assert lines[-1] == "ddg: bits = 2: too few"


def test_a_reason_stands_once_for_all_that_it_holds_for_and_fits_a_terminal():
    why = "rate = 1.0: every coordinate that is to be sent takes 1.03 bits per weight; raise the rate to that"
    refused = [{"mechanism": name, "error": why} for name in ("skellam", "ddg")]
    shown = comparison_text([row("smm", 1.0), *refused], [{"asked_rate": 0.5, "error": "too few"}])
    assert max(map(len, shown.splitlines())) <= 80
    *_, reasons = shown.split("\n\n")
    assert " ".join(reasons.split()) == f"skellam, ddg: {why} rate 0.5: too few"


def test_the_best_comes_first():
    shown = comparison_text([row("cpsgd", 3.0), row("smm", 1.0)], [])
    assert shown.index("smm") < shown.index("cpsgd")
    assert relative(row("smm", 1.5)) == 1.5
