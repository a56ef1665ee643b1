/* Spark's xxhash64: XXH64 with a seed of its own for every row; see lsmstate.hashing. */
#include "kernel.h"

#define P1 0x9E3779B185EBCA87ULL
#define P2 0xC2B2AE3D27D4EB4FULL
#define P3 0x165667B19E3779F9ULL
#define P4 0x85EBCA77C2B2AE63ULL
#define P5 0x27D4EB2F165667C5ULL

static inline uint64_t rotated(uint64_t word, int bits) { return word << bits | word >> (64 - bits); }
static inline uint64_t lane(uint64_t sum, uint64_t word) { return rotated(sum + word * P2, 31) * P1; }
static inline uint64_t mixed_8(uint64_t h, uint64_t word) { return rotated(h ^ lane(0, word), 27) * P1 + P4; }
static inline uint64_t mixed_4(uint64_t h, uint64_t word) { return rotated(h ^ word * P1, 23) * P2 + P3; }
static inline uint64_t mixed_1(uint64_t h, uint64_t byte) { return rotated(h ^ byte * P5, 11) * P1; }

static inline uint64_t avalanche(uint64_t h) {
    h = (h ^ h >> 33) * P2;
    h = (h ^ h >> 29) * P3;
    return h ^ h >> 32;
}

static uint64_t hash_of(const uint8_t *at, uint64_t size, uint64_t seed) {
    const uint8_t *end = at + size;
    uint64_t h = seed + P5, words[4];
    uint32_t half;
    if (size >= 32) {
        uint64_t sums[4] = {seed + P1 + P2, seed + P2, seed, seed - P1};
        for (; end - at >= 32; at += 32) {
            memcpy(words, at, 32);
            for (int i = 0; i < 4; i++) sums[i] = lane(sums[i], words[i]);
        }
        h = rotated(sums[0], 1) + rotated(sums[1], 7) + rotated(sums[2], 12) + rotated(sums[3], 18);
        for (int i = 0; i < 4; i++) h = (h ^ lane(0, sums[i])) * P1 + P4;
    }
    h += size;
    for (; end - at >= 8; at += 8) {
        memcpy(words, at, 8);
        h = mixed_8(h, words[0]);
    }
    if (end - at >= 4) {
        memcpy(&half, at, 4);
        h = mixed_4(h, half);
        at += 4;
    }
    for (; at < end; at++) h = mixed_1(h, *at);
    return avalanche(h);
}

static inline int is_null(const Py_buffer *valid, int64_t row) {
    return valid->buf && !(((const uint8_t *)valid->buf)[row >> 3] >> (row & 7) & 1);
}

/* Takes the validity bits of an Arrow array, or None; they begin at a row. */
static int get_valid(PyObject *told, Py_buffer *valid, int64_t first, int64_t rows) {
    if (told == Py_None) return 0;
    if (PyObject_GetBuffer(told, valid, PyBUF_SIMPLE)) return -1;
    return first < 0 || (uint64_t)valid->len * 8 < (uint64_t)first + (uint64_t)rows ? misfits("validity") : 0;
}

/* hash_longs(values, valid or None, first, hashes): each hash becomes the seed of its value, unless that is NULL. */
PyObject *hash_longs(PyObject *self, PyObject *args) {
    Py_buffer values, hashes, valid = {0};
    PyObject *told;
    long long first;
    if (!PyArg_ParseTuple(args, "y*OLw*", &values, &told, &first, &hashes)) return NULL;
    const uint64_t *value = values.buf;
    uint64_t *hash = hashes.buf;
    int64_t rows = hashes.len / 8;
    int bad = values.len != hashes.len ? misfits("hash_longs") : get_valid(told, &valid, first, rows);
    if (!bad) {
        Py_BEGIN_ALLOW_THREADS
        for (int64_t i = 0; i < rows; i++)
            if (!is_null(&valid, first + i)) hash[i] = avalanche(mixed_8(hash[i] + P5 + 8, value[i]));
        Py_END_ALLOW_THREADS
    }
    if (valid.obj) PyBuffer_Release(&valid);
    PyBuffer_Release(&values), PyBuffer_Release(&hashes);
    if (bad) return NULL;
    Py_RETURN_NONE;
}

/* hash_bytes(offsets, width, data, valid or None, first, hashes): the same for values of 4 or 8 byte offsets. */
PyObject *hash_bytes(PyObject *self, PyObject *args) {
    Py_buffer offsets, data, hashes, valid = {0};
    PyObject *told;
    long long first;
    int width;
    if (!PyArg_ParseTuple(args, "y*iy*OLw*", &offsets, &width, &data, &told, &first, &hashes)) return NULL;
    const int32_t *narrow = offsets.buf;
    const int64_t *wide = offsets.buf;
    uint64_t *hash = hashes.buf;
    int64_t rows = hashes.len / 8;
    int bad = (width != 4 && width != 8) || offsets.len != (rows + 1) * width ? misfits("hash_bytes")
                                                                              : get_valid(told, &valid, first, rows);
    if (!bad) {
        int outside = 0;
        Py_BEGIN_ALLOW_THREADS
        for (int64_t i = 0; i < rows && !outside; i++) {
            int64_t start = width == 4 ? narrow[i] : wide[i], end = width == 4 ? narrow[i + 1] : wide[i + 1];
            outside = start < 0 || start > end || end > data.len;
            if (!outside && !is_null(&valid, first + i)) hash[i] = hash_of((const uint8_t *)data.buf + start, end - start, hash[i]);
        }
        Py_END_ALLOW_THREADS
        bad = outside && misfits("hash_bytes");
    }
    if (valid.obj) PyBuffer_Release(&valid);
    PyBuffer_Release(&offsets), PyBuffer_Release(&data), PyBuffer_Release(&hashes);
    if (bad) return NULL;
    Py_RETURN_NONE;
}
