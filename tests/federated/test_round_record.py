"""A round's record: plain data and back, in the form that checkpoints have always had."""

import pytest

from skelmix.errors import CorruptState
from skelmix.federated import RoundDiagnostics, RoundRecord

OF_AN_EARLIER_VERSION = {
    "round": 3,
    "opened": True,
    "accuracy": 0.5,
    "diagnostics": {"private": False, "sampled": 9, "survivors": 8, "broken": 0, "mse": 0.25, "seconds": 0.1},
}


@pytest.mark.parametrize(
    "record",
    [
        RoundRecord(1, opened=True),
        RoundRecord(2, lost=True),
        RoundRecord(3, opened=True, accuracy=0.0),
        RoundRecord(4, diagnostics=RoundDiagnostics(5, 0, seconds=0.25, broken=1, mse=0.0)),
    ],
)
def test_a_record_is_the_same_after_a_way_through_plain_data(record):
    assert RoundRecord.from_dict(record.to_dict()) == record


def test_plain_data_has_the_keys_of_earlier_checkpoints():
    assert RoundRecord.from_dict(OF_AN_EARLIER_VERSION).to_dict() == OF_AN_EARLIER_VERSION
    assert RoundRecord(2, lost=True).to_dict() == {"round": 2, "opened": False, "lost": True}


@pytest.mark.parametrize(
    "data", [{"round": 1, "colour": "red"}, {"opened": True}, {"round": 1, "diagnostics": {"sampled": 1}}, 7]
)
def test_other_content_is_refused(data):
    with pytest.raises(CorruptState, match="another version"):
        RoundRecord.from_dict(data)
