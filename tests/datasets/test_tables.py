"""Tables of records by party: flights of 2013 by airline, and made-up hospitals."""

import csv

import numpy as np
import pytest

from skelmix.datasets.flight_files import AIRLINES, flights, parties
from skelmix.datasets.hospital_files import HEADER, hospitals
from skelmix.errors import DataUnavailable
from skelmix.statistics import Estimator, Layout, Precision, parse_question, party_sum

RADIUS = 1 << 34
AIRPORTS = ("EWR", "JFK", "LGA")


def test_hospitals_are_reproducible(tmp_path):
    one, two = hospitals(tmp_path / "a", records=50), hospitals(tmp_path / "b", records=50)
    assert len(one) == 5
    assert [path.read_text() for path in one] == [path.read_text() for path in two]
    assert one[0].read_text().splitlines()[0] == ",".join(HEADER)
    assert len({path.read_text() for path in one}) == 5


def test_flights_that_are_absent_say_where_to_put_them(tmp_path, monkeypatch):
    monkeypatch.setenv("SKELMIX_CACHE", str(tmp_path))
    with pytest.raises(DataUnavailable, match=r"put flights\.csv"):
        flights(fetch=False)
    (tmp_path / "flights").mkdir()
    (tmp_path / "flights" / "flights.csv").write_text("year\n2013\n")
    with pytest.raises(DataUnavailable):
        flights(fetch=False)


def test_answers_about_real_flights_are_near_the_truth(tmp_path):
    try:
        files = parties(tmp_path, AIRLINES)
    except DataUnavailable as problem:
        pytest.skip(str(problem))
    question = parse_question(
        f"count; mean(dep_delay, -30..180); histogram(origin: {'|'.join(AIRPORTS)}); "
        "quantiles(air_time, 0..700 by 5; 0.5)"
    )
    layout = Layout(question)
    total = sum(party_sum(path, layout, RADIUS).vector for path in files) / RADIUS
    noise = np.random.default_rng(0).normal(0, 1e-6, layout.dimension)
    answers = Estimator(layout, Precision(1e-6), radius=RADIUS).answers(total + noise)
    with flights().open(newline="") as file:
        rows = list(csv.DictReader(file))
    delays = [min(max(float(row["dep_delay"]), -30), 180) for row in rows if row["dep_delay"] != "NA"]
    times = sorted(float(row["air_time"]) for row in rows if row["air_time"] != "NA")
    assert answers[0].estimates.value == pytest.approx(len(rows), abs=0.01)
    assert answers[1].estimates.value == pytest.approx(np.mean(delays), abs=1e-4)
    for airport in AIRPORTS:
        count = sum(row["origin"] == airport for row in rows)
        assert answers[2].estimates[airport].value == pytest.approx(count, abs=0.01)
    median = answers[3].estimates["0.5"]
    assert median.low <= times[(len(times) - 1) // 2] <= median.high
    assert median.high - median.low == 5
