"""Scattering features: the right filters, a function of one image each, cached by content."""

import os

import numpy as np
import pytest
import torch

from skelmix.errors import CorruptState, InvalidInput, StorageFailed
from skelmix.federated import feature_cache
from skelmix.federated import scattering_network as scattering
from skelmix.federated.feature_cache import cached_features
from skelmix.federated.scattering_network import features, group_norm

RNG = np.random.default_rng(8)
GREY = RNG.integers(0, 256, (9, 28, 28), np.uint8)
COLOUR = RNG.integers(0, 256, (3, 3, 32, 32), np.uint8)


def test_shapes_are_81_channels_of_a_quarter_of_the_side():
    assert scattering.scattering(GREY[0]).shape == (81, 8, 8)
    assert scattering.scattering(COLOUR[0]).shape == (243, 8, 8)
    assert features(GREY[:2], 27).shape == (2, 5184)
    assert features(COLOUR[:1], 81).shape == (1, 15552)


def test_an_image_has_the_same_bits_in_any_batch():
    whole = features(GREY, 27)
    for rows in ([4], [8, 0, 3], list(range(8, -1, -1)), [2, 2, 2, 2, 2]):
        assert (features(GREY[rows], 27) == whole[rows]).all()
    changed = GREY.copy()
    changed[3] = 0
    rest = np.arange(9) != 3
    assert (features(changed, 27)[rest] == whole[rest]).all()


def slow_scattering(image, fine, coarse):
    """The definition, convolution by convolution at full resolution, with averages by direct sums."""
    pixels = np.pad(image / 255, 2)
    x = np.pad(pixels, 4, mode="reflect")

    def convolve(signal, spectrum):
        return np.fft.ifft2(np.fft.fft2(signal) * spectrum)

    def average(signal):
        out = np.zeros((8, 8))
        rows, columns = np.indices(signal.shape)
        for i, j in np.ndindex(8, 8):
            down = (rows - 4 - 4 * i + 20) % 40 - 20
            right = (columns - 4 - 4 * j + 20) % 40 - 20
            weight = np.exp(-(down**2 + right**2) / (2 * 1.6**2))
            out[i, j] = (signal * weight).sum() / weight.sum()
        return out

    def average_of_half(signal):
        """Of every other pixel only, as the coarse scale is computed."""
        kept = np.zeros_like(signal)
        kept[::2, ::2] = signal[::2, ::2]
        mask = np.zeros_like(signal)
        mask[::2, ::2] = 1
        return average(kept) / average(mask)

    first = [abs(convolve(x, wave)) for wave in fine]
    channels = [average(x), *map(average, first)]
    channels += [average_of_half(abs(convolve(x, wave))) for wave in coarse]
    channels += [average_of_half(abs(convolve(one, wave))) for one in first for wave in coarse]
    return np.stack(channels)


def test_it_is_the_transform_of_the_definition():
    bank = scattering._bank(40, 40)
    slow = slow_scattering(GREY[0].astype(float), bank.fine.real.numpy(), bank.coarse.real.numpy())
    assert np.allclose(scattering.scattering(GREY[0]).numpy(), slow, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("orientation", range(8))
@pytest.mark.parametrize("scale", [1, 2])
def test_a_wavelet_answers_to_waves_of_its_own_direction_and_scale(orientation, scale):
    bank = scattering._bank(40, 40)
    spectra = torch.cat([bank.fine, bank.coarse]).real
    place = orientation + 8 * (scale - 1)
    assert abs(spectra[place, 0, 0]) < 1e-6  # no mean
    angle, frequency = np.pi * orientation / 8, 3 / 8 * 40 / scale
    row, column = round(frequency * np.sin(angle)) % 40, round(frequency * np.cos(angle)) % 40
    rings = spectra[8 * (scale - 1) : 8 * scale, row, column]
    assert rings.argmax() == orientation
    assert spectra[place].max() < 1.1
    assert rings[orientation] > 0.9


def test_a_constant_image_has_constant_averages_and_nothing_else():
    flat = scattering.scattering(np.full((32, 32), 51, np.uint8))
    assert torch.allclose(flat[0], torch.tensor(0.2), atol=1e-5)
    assert flat[1:].abs().max() < 1e-5


def test_group_norm_has_mean_zero_and_variance_one_in_each_group():
    values = group_norm(scattering.scattering(GREY[0]) * 100, 27).reshape(27, -1)
    assert values.mean(1).abs().max() < 1e-4
    assert (values.square().mean(1) - 1).abs().max() < 1e-2
    assert not group_norm(torch.ones(81, 8, 8), 9).any()
    for groups in (0, 2, 82):
        with pytest.raises(InvalidInput, match="groups"):
            group_norm(torch.ones(81, 8, 8), groups)


@pytest.mark.parametrize("images", [GREY.astype(float), GREY[0], np.zeros((2, 4, 4), np.uint8)])
def test_other_arrays_are_refused(images):
    with pytest.raises(InvalidInput, match="images"):
        features(images, 27)


def test_features_are_computed_once(tmp_path, monkeypatch):
    heard = []
    first = cached_features(GREY, 27, directory=tmp_path, report=heard.append)
    assert (first == features(GREY, 27)).all()
    assert sum(heard) == len(GREY)
    assert [path.stat().st_mode & 0o777 for path in tmp_path.iterdir()] == [0o600]
    monkeypatch.setattr(feature_cache, "_compute", None)
    again = cached_features(GREY, 27, directory=tmp_path)
    assert (again == first).all()
    again[0, 0] += 1
    assert (cached_features(GREY, 27, directory=tmp_path) == first).all()


def test_other_pixels_groups_or_versions_do_not_find_the_file(tmp_path, monkeypatch):
    cached_features(GREY, 27, directory=tmp_path)
    changed = GREY.copy()
    changed[0, 0, 0] ^= 1
    assert (cached_features(changed, 27, directory=tmp_path) == features(changed, 27)).all()
    assert (cached_features(GREY, 9, directory=tmp_path) == features(GREY, 9)).all()
    monkeypatch.setattr(scattering, "VERSION", scattering.VERSION + 1)
    cached_features(GREY, 27, directory=tmp_path)
    assert len(list(tmp_path.iterdir())) == 4


def test_an_interrupted_computation_leaves_nothing(tmp_path):
    def stop(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cached_features(GREY, 27, directory=tmp_path, report=stop)
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_file_is_refused(tmp_path):
    cached_features(GREY, 27, directory=tmp_path)
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:-2000])
    with pytest.raises(CorruptState, match="delete it"):
        cached_features(GREY, 27, directory=tmp_path)


def test_a_disk_that_refuses_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageFailed, match="SKELMIX_CACHE"):
        cached_features(GREY, 27, directory=tmp_path / "file" / "below")


@pytest.mark.parametrize("shape", [(len(GREY), 7), (len(GREY), 5184), (1, 5184)])
def test_a_file_of_other_features_is_refused(tmp_path, shape):
    cached_features(GREY, 27, directory=tmp_path)
    (path,) = tmp_path.iterdir()
    np.save(path, np.zeros(shape, np.int16))
    with pytest.raises(CorruptState, match=r"not hold the features of these images.*delete it"):
        cached_features(GREY, 27, directory=tmp_path)


def test_what_killed_processes_left_behind_is_removed(tmp_path):
    old, young = tmp_path / "a-v1-g27.npy.7-8.tmp", tmp_path / "a-v1-g27.npy.8-9.tmp"
    for path in (old, young):
        path.touch()
    os.utime(old, (0, 0))
    cached_features(GREY, 27, directory=tmp_path)
    assert (old.exists(), young.exists()) == (False, True)
