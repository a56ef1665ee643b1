"""The steps of XXH64, each over many hashes at once.

This module owns the arithmetic. It holds no state and may be called from any thread. All is modulo 2**64.

1. *Stripes.* A value of 32 bytes or more is first eaten 32 bytes at a time: four lanes take one 8-byte word
   each, and at the end they are folded into one hash. A shorter value starts from `seed + P5` instead.
2. *Length.* The length in bytes is added.
3. *Tail.* What the stripes left (0 to 31 bytes) is mixed in: up to three words of 8 bytes, up to one of
   4 bytes, and up to three single bytes.
4. *Avalanche.* Three shifts and two multiplications spread every bit over the hash.

A value of 4 or 8 bytes is one word of the tail. Every step over it can be undone, so two such values with the same
seed never share a hash.
"""

from __future__ import annotations

import numpy as np

from lsmstate.hashing.types import U64

# Numpy scalars, not Python ints: the arithmetic must stay in uint64.
P1 = np.uint64(0x9E3779B185EBCA87)
P2 = np.uint64(0xC2B2AE3D27D4EB4F)
P3 = np.uint64(0x165667B19E3779F9)
P4 = np.uint64(0x85EBCA77C2B2AE63)
P5 = np.uint64(0x27D4EB2F165667C5)
# What is added to the seed to start the four lanes: P1 + P2, P2, 0 and -P1.
LANES = np.array([(int(P1) + int(P2)) % 2**64, int(P2), 0, 2**64 - int(P1)], np.uint64)


def hash_8(words: U64, seeds: U64) -> U64:
    """Give XXH64 of values of 8 bytes, each with its own seed."""
    return avalanche(mix_8(seeds + P5 + np.uint64(8), words))


def hash_4(words: U64, seeds: U64) -> U64:
    """Give XXH64 of values of 4 bytes, each with its own seed. Requires: words below 2**32."""
    return avalanche(mix_4(seeds + P5 + np.uint64(4), words))


def mix_8(hashes: U64, words: U64) -> U64:
    """Mix an 8-byte word of the tail into each hash."""
    return rotate(hashes ^ (rotate(words * P2, 31) * P1), 27) * P1 + P4


def mix_4(hashes: U64, words: U64) -> U64:
    """Mix a 4-byte word of the tail into each hash."""
    return rotate(hashes ^ (words * P1), 23) * P2 + P3


def mix_1(hashes: U64, words: U64) -> U64:
    """Mix a single byte of the tail into each hash."""
    return rotate(hashes ^ (words * P5), 11) * P1


def avalanche(hashes: U64) -> U64:
    """Spread every bit over each hash: the last part of XXH64."""
    hashes = (hashes ^ (hashes >> np.uint64(33))) * P2
    hashes = (hashes ^ (hashes >> np.uint64(29))) * P3
    return hashes ^ (hashes >> np.uint64(32))


def rotate(words: U64, bits: int) -> U64:
    """Rotate each word to the left."""
    return (words << np.uint64(bits)) | (words >> np.uint64(64 - bits))


MIX = {8: mix_8, 4: mix_4, 1: mix_1}
