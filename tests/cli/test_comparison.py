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


def test_the_best_comes_first():
    shown = comparison_text([row("cpsgd", 3.0), row("smm", 1.0)], [])
    assert shown.index("smm") < shown.index("cpsgd")
    assert relative(row("smm", 1.5)) == 1.5
