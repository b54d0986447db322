"""The benchmark runs and reports what it promises."""

from skelmix.studies.benchmarks import noise


def test_the_benchmark_reports_every_sampler_at_every_rate():
    result = noise.run(samples=2000, repeats=1)
    found = {(entry["sampler"], entry["rate"]) for entry in result["results"]}
    for name in ("skelmix", "keystream", "numpy", "algorithm10", "cks"):
        assert {(name, rate) for rate in (0.25, 1.0, 5.95, 16.0)} <= found
    assert all(entry["samples_per_second"] > 0 for entry in result["results"])
    assert {entry["law"] for entry in result["results"]} <= {"skellam", "discrete_gaussian"}
    assert noise.table(result).row_count >= 5
