"""Published test vectors and independent implementations, through the calls that the protocol makes."""

import hmac
from fractions import Fraction

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from mpyc import finfields, thresha

from skelmix.encoding.wrapping import wire_dtype
from skelmix.errors import InvalidInput
from skelmix.noise.entropy import ReproducibleEntropy
from skelmix.secagg import masking, sharing
from skelmix.secagg.excess import ExcessNoise
from skelmix.secagg.failures import NotAuthentic
from skelmix.secagg.keys import Identity, KeyPair, derive, framed, seal, unseal, verify

H = bytes.fromhex


@pytest.mark.parametrize(
    ("scalar", "point", "result"),
    [  # RFC 7748, section 5.2
        (
            "a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4",
            "e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c",
            "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552",
        ),
        (
            "4b66e9d4d1b4673c5ad22691957d6af5c11b6421e0ea01d42ca4169e7918ba0d",
            "e5210f12786811d3f4b7959d0538ae2c31dbe7106fc03c3efc4cd549c715a493",
            "95cbde9476e8907d7aade45cb4b873f88b595a68799fa152e6f8f7647aac7957",
        ),
    ],
)
def test_x25519_of_rfc_7748(scalar, point, result):
    assert KeyPair(H(scalar)).agree(H(point)) == H(result)


def test_diffie_hellman_of_rfc_7748_section_6_1():
    alice = KeyPair(H("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a"))
    bob = KeyPair(H("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb"))
    assert alice.public == H("8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a")
    assert bob.public == H("de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f")
    shared = H("4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742")
    assert alice.agree(bob.public) == bob.agree(alice.public) == shared


def test_points_of_small_order_and_wrong_length_are_refused():
    for point in (bytes(32), b"\x01" + bytes(31), bytes(31)):
        with pytest.raises(NotAuthentic):
            KeyPair.generate().agree(point)


@pytest.mark.parametrize("kind", [KeyPair, Identity])
def test_secrets_of_another_length_are_no_keys(kind):
    for secret in (b"", bytes(31), bytes(33), "x" * 32):
        with pytest.raises(InvalidInput, match="32 bytes"):
            kind(secret)


def test_chacha20_poly1305_of_rfc_8439_section_2_8_2():
    key = H("808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9f")
    nonce = H("070000004041424344454647")
    associated = H("50515253c0c1c2c3c4c5c6c7")
    text = (
        b"Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the future, "
        b"sunscreen would be it."
    )
    sealed = H(
        "d31a8d34648e60db7b86afbc53ef7ec2a4aded51296e08fea9e2b5a736ee62d63dbea45e8ca9671282fafb69da92728b"
        "1a71de0a9e060b2905d6a5b67ecd3b3692ddbd7f2d778b8c9803aee328091b58fab324e4fad675945585808b4831d7bc"
        "3ff4def08e4b7a9de576d26586cec64b6116"
        "1ae10b594f09e26a7e902ecbd0600691"
    )
    assert seal(key, text, associated, nonce) == sealed
    assert unseal(key, sealed, associated, nonce) == text
    for at in range(0, 8 * len(sealed), 37):
        flipped = bytearray(sealed)
        flipped[at // 8] ^= 1 << at % 8
        with pytest.raises(NotAuthentic):
            unseal(key, bytes(flipped), associated, nonce)
    with pytest.raises(NotAuthentic):
        unseal(key, sealed, associated + b"x", nonce)


def test_derived_keys_differ_in_every_input_and_framing_is_injective():
    base = derive(b"s" * 32, b"purpose", b"t" * 32, b"a", b"bc")
    others = [
        derive(b"S" * 32, b"purpose", b"t" * 32, b"a", b"bc"),
        derive(b"s" * 32, b"purposf", b"t" * 32, b"a", b"bc"),
        derive(b"s" * 32, b"purpose", b"T" * 32, b"a", b"bc"),
        derive(b"s" * 32, b"purpose", b"t" * 32, b"ab", b"c"),
        derive(b"s" * 32, b"purpose", b"t" * 32, b"abc"),
    ]
    assert len({base, *others}) == 6
    assert framed(b"a", b"") != framed(b"", b"a") != framed(b"a")


def test_the_seed_of_a_piece_is_hkdf_of_its_secret_bound_to_round_participant_and_piece():
    secret, transcript = bytes(range(16)), bytes(range(100, 132))
    pieces = ExcessNoise(320.0, participants=10, fewest=7, colluding=1)
    key = hmac.digest(transcript, secret, "sha256")  # RFC 5869: extract, then one block of expand
    parts = (b"skelmix secagg v3 noise piece", (6).to_bytes(8, "big"), (2).to_bytes(8, "big"))
    info = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    seed = hmac.digest(key, info + b"\x01", "sha256")
    assert pieces.expandable([(2, secret)], transcript, 6) == [(seed, Fraction(4))]  # 4 of 320 units


def test_signatures_hold_for_one_purpose_one_text_one_signer():
    signer, other = Identity.generate(), Identity.generate()
    signature = signer.sign(b"purpose", b"text")
    verify(signer.public, signature, b"purpose", b"text")
    for public, purpose, text in (
        (other.public, b"purpose", b"text"),
        (signer.public, b"porpoise", b"text"),
        (signer.public, b"purpose", b"texT"),
        (b"", b"purpose", b"text"),
    ):
        with pytest.raises(NotAuthentic):
            verify(public, signature, purpose, text)
    assert Identity(signer.secret_bytes()).public == signer.public


@pytest.mark.parametrize("bits", [1, 8, 11, 16, 32])
def test_a_mask_is_the_keystream_of_aes_256_in_counter_mode_from_zero(bits):
    key, d = bytes(range(32)), masking.CHUNK_BYTES // 2 + 5
    vector = np.zeros(d, wire_dtype(bits))
    masking.apply(vector, [key], [])
    blocks = -(-vector.nbytes // 16)
    counters = b"".join(i.to_bytes(16, "big") for i in range(blocks))
    stream = Cipher(algorithms.AES(key), modes.ECB()).encryptor().update(counters)  # counter mode, by hand
    assert vector.tobytes() == stream[: vector.nbytes]
    masking.apply(vector, [], [key])
    assert not vector.any()


FIELD = finfields.GF(sharing.PRIME)


@pytest.mark.parametrize(("threshold", "count"), [(1, 1), (1, 4), (2, 3), (5, 9), (16, 17), (40, 100)])
def test_shares_recombine_in_mpyc_and_mpyc_shares_recombine_here(threshold, count):
    secret = sharing.draw_secret()
    shares = sharing.split(secret, threshold, count)
    holders = list(range(count))[::-1][:threshold]
    points = [(x + 1, [FIELD(int.from_bytes(shares[x], "big"))]) for x in holders]
    assert thresha.recombine(FIELD, points)[0].value.to_bytes(16, "big") == secret

    foreign = thresha.random_split(FIELD, [FIELD(int.from_bytes(secret, "big"))], threshold - 1, count)
    ours = [int(foreign[x][0]).to_bytes(16, "big") for x in holders]
    assert sharing.recover([x + 1 for x in holders], ours) == secret


def test_the_field_is_that_of_the_largest_prime_below_2_to_128():
    flint = pytest.importorskip("flint")
    assert flint.fmpz(sharing.PRIME).is_prime()
    assert not any(flint.fmpz(2**128 - k).is_prime() for k in range(1, 159))


def test_fewer_shares_than_the_threshold_fit_every_secret():
    """With t - 1 shares fixed, each candidate secret is met by exactly one polynomial: perfect secrecy."""
    shares = sharing.split(b"\x07" * 16, 3, 5)
    known = [(1, shares[0]), (4, shares[3])]
    for candidate in (0, 1, 2**128 - 160):
        points = [(0, candidate), *((x, int.from_bytes(share, "big")) for x, share in known)]
        third = thresha.recombine(FIELD, [(x, [FIELD(y)]) for x, y in points], 2)[0]
        completed = [share for _, share in known] + [third.value.to_bytes(16, "big")]
        assert sharing.recover([1, 4, 2], completed) == candidate.to_bytes(16, "big")


def test_shares_of_one_secret_are_fresh_each_time_and_bad_calls_are_refused():
    assert sharing.split(bytes(16), 2, 2) != sharing.split(bytes(16), 2, 2)
    for secret in (bytes(15), bytes(17), sharing.PRIME.to_bytes(16, "big")):
        with pytest.raises(InvalidInput, match="draw_secret"):
            sharing.split(secret, 2, 3)
    with pytest.raises(InvalidInput):
        sharing.split(bytes(16), 4, 3)


def test_a_secret_is_a_uniform_field_element_drawn_again_when_it_is_not_below_the_prime():
    class Given(ReproducibleEntropy):
        def fill(self, out):
            out[:] = np.frombuffer(blocks.pop(0), np.uint8)

    blocks = [(sharing.PRIME + 7).to_bytes(16, "big"), (sharing.PRIME - 1).to_bytes(16, "big")]
    assert sharing.draw_secret(Given(0)) == (sharing.PRIME - 1).to_bytes(16, "big")
    assert blocks == []
