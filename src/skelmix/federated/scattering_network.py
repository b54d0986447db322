"""Scattering features of images: what a private linear model learns from better than from pixels.

A two-scale scattering transform (Bruna and Mallat 2013): the image is convolved with Morlet wavelets of eight
orientations at two scales, moduli are taken, each fine modulus is convolved with the coarse wavelets again,
and everything is averaged over 4 by 4 pixels. That makes 1 + 16 + 64 = 81 channels of a quarter of the side,
with no parameter learnt from data, so they cost no privacy (Tramèr and Boneh 2021, arXiv:2011.11660).

Images are transformed one at a time: every bit of the features is a function of that image alone, whoever
else is in the batch. A guarantee about single records needs that.
"""

from __future__ import annotations

import functools
import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from skelmix.errors import InvalidInput
from skelmix.federated.feature_units import STEP

VERSION = 1  # raise it with any change to the features' values, so that cached features are not mixed up
ORIENTATIONS = 8
_STRIDE = 4  # pixels from one feature to the next, each way
_MARGIN = 4  # pixels mirrored around the image, so that opposite edges do not meet
_WIDTH = 0.8  # standard deviation of the finest wavelet's envelope, in pixels
_FREQUENCY = 3 * math.pi / 4  # central frequency of the finest wavelet, radians per pixel
_SLANT = 4 / ORIENTATIONS  # width along the wave over width across it
_EPSILON = 1e-5  # added to a group's variance


def features(images: NDArray[np.uint8], groups: int) -> NDArray[np.int16]:
    """Normalised scattering features of each image, int16 (count, features) in units of `STEP`.

    `images` is uint8 (count, height, width) or (count, colours, height, width); 28 by 28 makes 81·8·8 = 5,184
    features, 32 by 32 in three colours 15,552. The grid halves their memory, and is far finer than the noise.
    Beyond ±32, which only sparse groups of more than 1,024 numbers reach, they are clamped. About 2 ms per
    grey image, 6 ms per coloured one.
    """
    if images.dtype != np.uint8 or images.ndim not in (3, 4) or min(images.shape[-2:], default=0) < 8:
        raise InvalidInput(
            f"images is {images.dtype} of shape {images.shape}: must be uint8 (count, height, width) or "
            "(count, colours, height, width) with sides of at least 8 pixels"
        )
    rows = [_on_the_grid(group_norm(scattering(image), groups)) for image in images]
    return np.stack(rows) if rows else np.zeros((0, 0), np.int16)


def _on_the_grid(values: Tensor) -> NDArray[np.int16]:
    return (values / STEP).round().clamp(-32768, 32767).to(torch.int16).numpy()


def group_norm(coefficients: Tensor, groups: int) -> Tensor:
    """Normalise each of `groups` runs of channels of one image to mean 0 and variance 1.

    Mean and variance are over its channels and pixels; flattened to (features,). A constant group becomes
    zeros.
    """
    channels = coefficients.shape[0]
    if groups < 1 or channels % groups:
        raise InvalidInput(f"groups = {groups}: must divide the {channels} channels; take 9, 27 or 81")
    runs = coefficients.reshape(groups, -1)
    centred = runs - runs.mean(1, keepdim=True)
    return (centred / (centred.square().mean(1, keepdim=True) + _EPSILON).sqrt()).flatten()


def scattering(image: NDArray[np.uint8]) -> Tensor:
    """Scattering coefficients of one image's pixels in [0, 1], float32 (81·colours, height/4, width/4).

    Sides are first filled up with black to a multiple of 8: 28 becomes 32.
    """
    pixels = torch.from_numpy(image.astype(np.float32) / np.float32(255))
    pixels = pixels[None] if pixels.dim() == 2 else pixels
    down, right = -pixels.shape[1] % 8, -pixels.shape[2] % 8
    pixels = pad(pixels, (right // 2, right - right // 2, down // 2, down - down // 2))
    mirrored = pad(pixels, (_MARGIN,) * 4, mode="reflect")
    bank = _bank(mirrored.shape[1], mirrored.shape[2])
    spectrum = torch.fft.fft2(mirrored)[:, None]
    fine = _modulus(spectrum * bank.fine)
    coarse = _modulus(_every_other(spectrum * bank.coarse))
    both = _modulus(_every_other(torch.fft.fft2(fine)[:, :, None] * bank.coarse))
    whole = torch.cat([mirrored[:, None], fine], 1)
    halved = torch.cat([coarse, both.flatten(1, 2)], 1)
    averages = [bank.rows @ whole @ bank.columns.T, bank.rows_halved @ halved @ bank.columns_halved.T]
    return torch.cat(averages, 1).flatten(0, 1)


def _every_other(spectrum: Tensor) -> Tensor:
    """The spectrum of the signal that keeps every other row and column: the mean of four quarters."""
    height, width = spectrum.shape[-2] // 2, spectrum.shape[-1] // 2
    halves = spectrum[..., :height, :] + spectrum[..., height:, :]
    return (halves[..., :width] + halves[..., width:]) / 4


def _modulus(spectrum: Tensor) -> Tensor:
    signal = torch.fft.ifft2(spectrum)
    modulus: Tensor = (signal.real * signal.real).addcmul_(signal.imag, signal.imag).sqrt_()
    return modulus


class _Bank:
    """Filters for padded images of one size: wavelets as spectra, averages as matrices from each side."""

    def __init__(self, height: int, width: int) -> None:
        self.fine = torch.stack([_wavelet(height, width, 1, k) for k in range(ORIENTATIONS)])
        self.coarse = torch.stack([_wavelet(height, width, 2, k) for k in range(ORIENTATIONS)])
        self.rows, self.columns = _average(height, 1), _average(width, 1)
        self.rows_halved, self.columns_halved = _average(height // 2, 2), _average(width // 2, 2)


@functools.lru_cache(maxsize=8)
def _bank(height: int, width: int) -> _Bank:
    return _Bank(height, width)


def _wavelet(height: int, width: int, scale: int, orientation: int) -> Tensor:
    """The spectrum of a Morlet wavelet: a wave under a Gaussian envelope, less what would give it a mean.

    It is real, since the wavelet at -u is the conjugate of that at u.
    """
    angle = math.pi * orientation / ORIENTATIONS
    rows = torch.arange(-2 * height, 3 * height, dtype=torch.float64)[:, None]
    columns = torch.arange(-2 * width, 3 * width, dtype=torch.float64)[None, :]
    along = math.cos(angle) * columns + math.sin(angle) * rows
    across = math.cos(angle) * rows - math.sin(angle) * columns
    spread = _WIDTH * scale
    envelope = torch.exp(-(along**2 + (_SLANT * across) ** 2) / (2 * spread**2))
    wave = envelope * torch.exp(1j * _FREQUENCY / scale * along)

    def periodic(signal: Tensor) -> Tensor:
        return signal.reshape(5, height, 5, width).sum((0, 2))

    wave, envelope = periodic(wave), periodic(envelope)
    wavelet = (wave - wave.sum() / envelope.sum() * envelope) * _SLANT / (2 * math.pi * spread**2)
    spectrum: Tensor = torch.fft.fft2(wavelet).real.to(torch.complex64)
    return spectrum


def _average(side: int, step: int) -> Tensor:
    """A matrix (side·step/4 - 2, side) of Gaussian averages at every fourth pixel.

    Every step-th pixel of the signal is given; the mirrored margin is left out.
    """
    centres = torch.arange(_MARGIN, side * step - _MARGIN, _STRIDE, dtype=torch.float64)[:, None]
    places = torch.arange(side, dtype=torch.float64)[None, :] * step
    period = side * step
    distance = (places - centres + period / 2) % period - period / 2
    weights = torch.exp(-(distance**2) / (2 * (2 * _WIDTH) ** 2))
    return (weights / weights.sum(1, keepdim=True)).float()
