"""The benchmark app is whole, and the peer it is compared with does the work."""

import tomllib

from skelmix.studies.benchmarks.flower import APP, _identified, secure_round
from skelmix.studies.benchmarks.secagg_peer import unmask_seconds


def test_the_benchmark_app_names_components_that_are_there():
    settings = tomllib.loads((APP / "pyproject.toml").read_text())
    components = settings["tool"]["flwr"]["app"]["components"]
    for component in components.values():
        module, _, name = component.partition(":")
        source = (APP / f"{module.replace('.', '/')}.py").read_text()
        assert f"\n{name} = " in source


def test_secure_rounds_in_process_end_with_a_sum():
    with _identified():
        assert len(secure_round(4, 16, 8, rounds=2)) == 2


def test_flowers_primitives_unmask_a_small_round():
    assert unmask_seconds(4, 32, 8, absent=1) > 0
