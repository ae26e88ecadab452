"""The sampler on the CPU, equal to the kernel's to the bit: fp32 products, sums and one division, everything else integers."""

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
U32 = NDArray[np.uint32]
U64 = NDArray[np.uint64]
_EXP = (1.53533734e-4, 1.33988744e-3, 9.61843552e-3, 5.55033021e-2, 2.40226507e-1, 6.93147182e-1, 1.0)
_LOG = (1.11111111e-1, 1.42857149e-1, 2.00000003e-1, 3.33333343e-1, 1.0)


def _polynomial(coefficients: tuple[float, ...], x: F32) -> F32:
    p = np.full_like(x, np.float32(coefficients[0]))
    for c in coefficients[1:]:
        p = p * x + np.float32(c)  # two roundings: numpy fuses nothing
    return p


def weights(z: F32) -> U64:
    """floor(2^40 * exp(z)) for z <= 0, 0 where it is too small (or NaN)."""
    y = z * np.float32(1.44269504)
    live = y > np.float32(-42.0)
    y = np.where(live, y, np.float32(0.0))
    n = np.rint(y)
    p = _polynomial(_EXP, y - n)
    scaled = (p * np.float32(1073741824.0)).astype(np.uint64) << np.uint64(10)
    return np.where(live, scaled >> (-n).astype(np.uint64), np.uint64(0))


def log(v: F32) -> F32:
    """Natural logarithm of positive normal numbers."""
    bits = v.view(np.uint32)
    exponent = (bits >> np.uint32(23)).astype(np.int32) - 127
    m = ((bits & np.uint32(0x7FFFFF)) | np.uint32(0x3F800000)).view(np.float32)
    high = m > np.float32(1.41421354)
    m = np.where(high, m * np.float32(0.5), m)
    exponent = exponent + high
    s = (m - np.float32(1.0)) / (m + np.float32(1.0))
    p = _polynomial(_LOG, s * s)
    return exponent.astype(np.float32) * np.float32(6.93147182e-1) + (np.float32(2.0) * s) * p


def gumbel(random: U32) -> F32:
    """-log(-log(u)), u the upper 23 bits in the middle of their step."""
    u = ((random >> np.uint32(9)).astype(np.float32) + np.float32(0.5)) * np.float32(1.1920929e-7)
    return -log(-log(u))


def philox(counter: U32, key: int) -> U32:
    """Philox4x32-10: counter [N,4], a 64-bit key -> [N,4]."""
    c = [counter[:, i].astype(np.uint64) for i in range(4)]
    low, mask = key & 0xFFFFFFFF, np.uint64(0xFFFFFFFF)
    high = key >> 32
    for _ in range(10):
        a, b = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [
            (b >> np.uint64(32)) ^ c[1] ^ np.uint64(low),
            b & mask,
            (a >> np.uint64(32)) ^ c[3] ^ np.uint64(high),
            a & mask,
        ]
        low, high = (low + 0x9E3779B9) & 0xFFFFFFFF, (high + 0xBB67AE85) & 0xFFFFFFFF
    return np.stack(c, 1).astype(np.uint32)


def kept(logits: F32, inverse_temperature: np.float32, top_k: int, top_p: np.float32) -> NDArray[np.bool_]:
    """Which of a row's finite-maximum logits (bf16 values) may be drawn."""
    z = (logits - logits.max()) * inverse_temperature
    w = weights(z)
    order = np.sort(logits)[::-1]
    least = np.float32(-np.inf)
    if 0 < top_k < len(logits):
        least = order[top_k - 1]
    if top_p < 1.0:
        total = int(w[logits >= least].sum(dtype=np.uint64))
        target = max(1, int(np.float64(top_p) * np.float64(total)))
        values, place = np.unique(-logits, return_inverse=True)
        sums = np.zeros(len(values), np.uint64)
        np.add.at(sums, place.reshape(-1), w)
        reached = np.searchsorted(np.cumsum(sums, dtype=np.uint64), np.uint64(target), side="left")
        least = max(least, -values[reached])
    return logits >= least


def draw(
    logits: F32, inverse_temperature: np.float32, top_k: int, top_p: np.float32, nonce: int, position: int, step: int, key: int
) -> int:
    """The id for one row of logits (bf16 values); -1 where the largest is not finite."""
    if np.isnan(logits).any() or not np.isfinite(logits.max()):
        return -1
    if inverse_temperature == 0.0:
        return int(logits.argmax())
    quads = len(logits) // 4
    counter = np.empty((quads, 4), np.uint32)
    counter[:, 0] = np.arange(quads)
    counter[:, 1:] = [nonce & 0xFFFFFFFF, position & 0xFFFFFFFF, step & 0xFFFFFFFF]
    noise = gumbel(philox(counter, key).reshape(-1))
    with np.errstate(invalid="ignore"):
        score = (logits - logits.max()) * inverse_temperature + noise
    return int(np.where(kept(logits, inverse_temperature, top_k, top_p), score, np.float32(-np.inf)).argmax())
