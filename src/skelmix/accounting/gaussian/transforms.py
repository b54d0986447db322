"""Convolutions of probability masses by fast Fourier transforms, each with a proved bound on its rounding.

Write u = 2^-53, p for the masses (n of them, after padding), P for their exact transform, P' for the computed
one. Proof of `convolution_power`, T factors:

1. Forward. A Cooley-Tukey transform adds up, for each output, p_j·w over all j, where w is a product of the
   factors met on the way through its passes, one twiddle and one butterfly each. With complex products in
   error by sqrt(5)·u (Brent, Percival and Zimmermann 2007), twiddles by 6u and butterflies of radix 2, 3, 4
   and 5 (no others for sizes from `next_fast_len(real=True)`) by at most sqrt(2)·(1, 4.5, 2, 5.5)·u, a pass
   of radix r errs by less than 12·log2(r)·u relative to |w| (Higham 2002, section 24.1, is the case of radix
   2). Hence |P'_k - P_k| <= a = 12·(log2(n) + 2)·u·sum(p): the 2 pays for second-order terms and for an
   extra pass where a real transform is made of a complex one.
2. Powers. By squaring, T - 1 products in relative error: |Q'_k - P'_k^T| <= ((1 + 3u)^T - 1)·|P'_k|^T. And
   |P'_k^T - P_k^T| <= T·a·(|P'_k| + a)^(T-1), which is at most T·a·e^(T·a/t) times |P'_k|^T/t where |P'_k|
   is t or more, and times t^(T-1) elsewhere, for every t in (0, 1].
3. Back. The passes are sqrt(r) times unitary, and |F_r| has norm r: a pass errs in L2 by less than
   18·log2(r)·u, so the inverse by b = 18·(log2(n) + 2)·u relative to the norm.
4. Sum. Any part of the result errs in L1 by at most sqrt(n) times its L2 error, and an inverse transform
   divides L2 norms by sqrt(n): the L1 error is at most the L2 norm of the spectrum's error, plus b·|Q'|.

`sum(p)` is about 1, so masses far in the tail are not correct digit by digit, and need not be: the error is
counted against δ. The constants are checked on the library in use by the tests, with unit masses at
all distances, whose transforms are those products w.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.fft import irfft, rfft

from skelmix.arrays import ComplexArray, FloatArray

_UNIT = 2.0**-53
_SPLITS = (0.5, 0.9, 0.99)  # values of t; the best one is taken


def forward_error(size: int) -> float:
    """Bound on the error of each entry of a transform of this size, per unit of mass."""
    return 12 * (math.log2(size) + 2) * _UNIT


def _inverse_error(size: int) -> float:
    """Bound on the L2 error of an inverse transform, relative to the norm."""
    return 18 * (math.log2(size) + 2) * _UNIT


def convolution_power(mass: FloatArray, count: int, size: int) -> tuple[FloatArray, float]:
    """(the circular convolution of `count` copies of `mass`, padded to `size`; bound on its L1 error)."""
    spectrum = rfft(mass, size)
    powered = power(spectrum, count)
    norm = _norm(powered) * (1 + count * 4 * _UNIT)
    error = forward_error(size) * float(np.sum(np.abs(mass))) * (1 + 1e-9)
    spread = min(
        math.exp(min(700.0, count * error / t)) * (norm / t + math.sqrt(size) * t ** (count - 1))
        for t in _SPLITS
    )
    rounding = math.expm1(3 * count * _UNIT) + _inverse_error(size)
    return irfft(powered, size), count * error * spread + rounding * norm


def convolution(first: FloatArray, second: FloatArray, size: int) -> tuple[FloatArray, float]:
    """(the circular convolution of two masses, padded to `size`; bound on its L1 error)."""
    first_transform, second_transform = rfft(first, size), rfft(second, size)
    errors = [forward_error(size) * float(np.sum(np.abs(mass))) * (1 + 1e-9) for mass in (first, second)]
    product = first_transform * second_transform
    spectral = (
        errors[1] * _norm(first_transform)
        + errors[0] * _norm(second_transform)
        + math.prod(errors) * math.sqrt(size)
    )
    return irfft(product, size), spectral + (3 * _UNIT + _inverse_error(size)) * _norm(product)


def convolution_mixture(
    mass: FloatArray, size: int, generating: Callable[[ComplexArray, float], tuple[ComplexArray, FloatArray]]
) -> tuple[FloatArray, float]:
    """(the mass of a random number of copies, circular, padded to `size`; bound on its L1 error).

    generating(values, error) gives E[z^K] of the number K at each value, and a bound on how far each is from
    E[z^K] at any point within `error` of the value, rounding included. Steps 1, 3 and 4 are those above.
    """
    spectrum = rfft(mass, size)
    error = forward_error(size) * float(np.sum(np.abs(mass))) * (1 + 1e-9)
    values, errors = generating(spectrum, error)
    spread = math.sqrt(2) * float(np.linalg.norm(errors)) * (1 + 1e-9)
    return irfft(values, size), spread + _inverse_error(size) * _norm(values)


def _norm(half: ComplexArray) -> float:
    """An upper bound on the norm of the whole spectrum, from the half that a real transform keeps."""
    return math.sqrt(2) * float(np.linalg.norm(half)) * (1 + 1e-9)


def power(values: ComplexArray, count: int) -> ComplexArray:
    """values ** count by squaring: at most count - 1 products lie behind each result."""
    result = None
    square = values
    while True:
        if count & 1:
            result = square.copy() if result is None else result * square
        count >>= 1
        if not count:
            return square if result is None else result
        square = square * square
