/* Building sorted runs: their order, filter and directory. */
#include "kernel.h"

#define DIGIT_BITS 11 /* of a pass of the radix sort: its counters fit the first cache */
#define DIGITS (1 << DIGIT_BITS)

/* build_bloom(hashes, low, shift, factor, words): sets the bits of sorted hashes in a filter. */
PyObject *build_bloom(PyObject *self, PyObject *args) {
    Py_buffer hashes, words;
    Spread s;
    if (!PyArg_ParseTuple(args, "y*KKKw*", &hashes, &s.low, &s.shift, &s.factor, &words)) return NULL;
    const uint64_t *hash = hashes.buf;
    uint64_t *word = words.buf, parts = words.len / 8;
    Py_ssize_t count = hashes.len / 8;
    int bad = bad_spread(s, parts, hash, count);
    if (!bad) {
        Py_BEGIN_ALLOW_THREADS
        for (Py_ssize_t i = 0; i < count; i++) {
            uint64_t at = part_of(s, hash[i]);
            if (at < parts) word[at] |= bloom_mask(hash[i]);
        }
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&hashes), PyBuffer_Release(&words);
    if (bad && misfits("build_bloom")) return NULL;
    Py_RETURN_NONE;
}

/* build_directory(hashes, low, shift, factor, directory): where the rows of each slot begin; see filters.py. */
PyObject *build_directory(PyObject *self, PyObject *args) {
    Py_buffer hashes, directory;
    Spread s;
    if (!PyArg_ParseTuple(args, "y*KKKw*", &hashes, &s.low, &s.shift, &s.factor, &directory)) return NULL;
    const uint64_t *hash = hashes.buf;
    uint32_t *begin = directory.buf;
    Py_ssize_t count = hashes.len / 8;
    uint64_t slots = directory.len / 4 ? directory.len / 4 - 1 : 0;
    int bad = !slots || (uint64_t)count > UINT32_MAX || bad_spread(s, slots, hash, count);
    if (!bad) {
        Py_BEGIN_ALLOW_THREADS
        memset(begin, 0, directory.len);
        for (Py_ssize_t i = 0; i < count; i++) {
            uint64_t slot = part_of(s, hash[i]);
            if (slot < slots) begin[slot + 1] = (uint32_t)(i + 1); /* of the rows of a slot the last one stays */
        }
        uint32_t end = 0;
        for (uint64_t slot = 0; slot <= slots; slot++) begin[slot] = end = begin[slot] > end ? begin[slot] : end;
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&hashes), PyBuffer_Release(&directory);
    if (bad && misfits("build_directory")) return NULL;
    Py_RETURN_NONE;
}

/* sort_hashes(hashes, low, shift, order, prefix): the stable order by 32 bits of each hash, and those bits, ordered. */
PyObject *sort_hashes(PyObject *self, PyObject *args) {
    Py_buffer hashes, order, prefix;
    Spread s = {0, 0, 0};
    if (!PyArg_ParseTuple(args, "y*KKw*w*", &hashes, &s.low, &s.shift, &order, &prefix)) return NULL;
    const uint64_t *hash = hashes.buf;
    int64_t *rows = order.buf;
    uint32_t *bits = prefix.buf;
    size_t count = hashes.len / 8;
    int bad = s.shift > 63 || count > UINT32_MAX || (size_t)order.len != count * 8 || (size_t)prefix.len != count * 4;
    uint64_t *keys = NULL, *other = NULL;
    if (!bad) {
        keys = malloc(count * 8 + 8), other = malloc(count * 8 + 8);
        if (keys && other) {
            Py_BEGIN_ALLOW_THREADS
            static const int passes = 3;
            uint32_t counts[3][DIGITS];
            memset(counts, 0, sizeof counts);
            for (size_t i = 0; i < count; i++) {
                uint64_t key = (hash[i] - s.low) >> s.shift & UINT32_MAX;
                keys[i] = key << 32 | i;
                for (int p = 0; p < passes; p++) counts[p][key >> (DIGIT_BITS * p) & (DIGITS - 1)]++;
            }
            for (int p = 0; p < passes; p++) {
                uint32_t begin = 0;
                for (int d = 0; d < DIGITS; d++) {
                    uint32_t here = counts[p][d];
                    counts[p][d] = begin;
                    begin += here;
                }
                for (size_t i = 0; i < count; i++)
                    other[counts[p][keys[i] >> (32 + DIGIT_BITS * p) & (DIGITS - 1)]++] = keys[i];
                uint64_t *swapped = keys;
                keys = other, other = swapped;
            }
            for (size_t i = 0; i < count; i++) {
                rows[i] = (int64_t)(keys[i] & UINT32_MAX);
                bits[i] = (uint32_t)(keys[i] >> 32);
            }
            Py_END_ALLOW_THREADS
        }
    }
    int failed = !bad && !(keys && other);
    free(keys), free(other);
    PyBuffer_Release(&hashes), PyBuffer_Release(&order), PyBuffer_Release(&prefix);
    if (failed) return PyErr_NoMemory();
    if (bad && misfits("sort_hashes")) return NULL;
    Py_RETURN_NONE;
}
