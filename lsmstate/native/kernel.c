/* The inner loops of the engine in C: the same results as the numpy code that calls them, several times sooner.
 *
 * Owns no memory beyond a call, keeps no state, and releases the GIL while it works, so that two threads search two runs
 * at the same time. All lengths are checked before a loop begins, and whatever is read from a file (the directory) is
 * checked before it is used as an index: a damaged or hostile file can make a function say so, never read elsewhere.
 */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define BLOOM_BITS 6      /* of a hash, that choose a bit of its filter word */
#define NARROW 16         /* rows of a slot up to which they are looked at one by one */
#define NEAR 8            /* probes ahead of which rows are fetched from memory, */
#define FAR 24            /* and the directory */
#define DIGIT_BITS 11     /* of a pass of the radix sort: its counters fit the first cache */
#define DIGITS (1 << DIGIT_BITS)

/* Where a hash falls among the parts of a run's range of hashes; see Span.spread. */
typedef struct {
    uint64_t low, shift, factor;
} Spread;

static inline uint64_t part_of(Spread s, uint64_t hash) { return (((hash - s.low) >> s.shift) * s.factor) >> 32; }

static inline uint64_t bloom_mask(uint64_t hash) {
    uint64_t mask = 0;
    for (int i = 0; i < 4; i++) mask |= (uint64_t)1 << (hash >> (BLOOM_BITS * i) & 63);
    return mask;
}

static int misfits(const char *what) {
    PyErr_Format(PyExc_ValueError, "%s: the arrays do not fit each other", what);
    return 1;
}

static int bad_spread(Spread s, uint64_t parts, const uint64_t *hashes, Py_ssize_t count) {
    if (!count) return 0;
    return s.shift > 63 || hashes[0] < s.low || s.factor > parts << 32 || part_of(s, hashes[count - 1]) >= parts;
}

/* filter_hashes(words, hashes, low, shift, factor, out) -> count: which sorted hashes a filter does not exclude. */
static PyObject *filter_hashes(PyObject *self, PyObject *args) {
    Py_buffer words, hashes, out;
    Spread s;
    if (!PyArg_ParseTuple(args, "y*y*KKKw*", &words, &hashes, &s.low, &s.shift, &s.factor, &out)) return NULL;
    const uint64_t *word = words.buf, *hash = hashes.buf;
    int64_t *found = out.buf;
    Py_ssize_t count = hashes.len / 8, kept = 0;
    uint64_t parts = words.len / 8;
    int bad = out.len < hashes.len || bad_spread(s, parts, hash, count);
    if (!bad) {
        Py_BEGIN_ALLOW_THREADS
        for (Py_ssize_t i = 0; i < count; i++) {
            uint64_t at = part_of(s, hash[i]), mask = bloom_mask(hash[i]);
            found[kept] = i;
            kept += at < parts && (word[at] & mask) == mask;
        }
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&words), PyBuffer_Release(&hashes), PyBuffer_Release(&out);
    return bad && misfits("filter_hashes") ? NULL : PyLong_FromSsize_t(kept);
}

/* The first row from a to b that is not before (hash, ts); by hash alone where there are no times. */
static int64_t lower_bound(const uint64_t *hashes, const int64_t *times, int64_t a, int64_t b, uint64_t hash, int64_t ts) {
    while (a < b) {
        int64_t middle = a + (b - a) / 2;
        if (hashes[middle] < hash || (times && hashes[middle] == hash && times[middle] < ts)) a = middle + 1;
        else b = middle;
    }
    return a;
}

/* The slot of a probe that comes later; beyond all slots if there is none. */
static inline uint64_t coming(Spread s, const int64_t *ask, int64_t at, int64_t wanted, const uint64_t *probes,
                              int64_t known) {
    return at < wanted && ask[at] >= 0 && ask[at] < known ? part_of(s, probes[ask[at]]) : UINT64_MAX;
}

/* match_rows(directory, run_hashes, run_times or None, probe_hashes, low_ts, high_ts, asked, low, shift, factor, since,
 *            position, row, who, rows) -> (count, position, row)
 * The pairs of those asked, from a position on, with equal hashes and an accepted time, as many as `who` and `rows`
 * take. The position is that of the next one asked, len(asked) when all are done; row is where it goes on, or -1.
 * A count of -1 says that the directory is damaged. */
static PyObject *match_rows(PyObject *self, PyObject *args) {
    Py_buffer directory, run_hashes, probe_hashes, low_ts, high_ts, asked, who, rows;
    PyObject *run_times;
    Spread s;
    long long since, position, resume;
    if (!PyArg_ParseTuple(args, "y*y*Oy*y*y*y*KKKLLLw*w*", &directory, &run_hashes, &run_times, &probe_hashes, &low_ts,
                          &high_ts, &asked, &s.low, &s.shift, &s.factor, &since, &position, &resume, &who, &rows))
        return NULL;
    Py_buffer times_buffer = {0};
    const int64_t *times = NULL;
    int64_t count = -2;
    if (run_times != Py_None && PyObject_GetBuffer(run_times, &times_buffer, PyBUF_SIMPLE)) goto done;
    if (run_times != Py_None) times = times_buffer.buf;
    const uint32_t *slot_rows = directory.buf;
    const uint64_t *hashes = run_hashes.buf, *probes = probe_hashes.buf;
    const int64_t *lows = low_ts.buf, *highs = high_ts.buf, *ask = asked.buf;
    int64_t *out_who = who.buf, *out_rows = rows.buf;
    int64_t total = run_hashes.len / 8, wanted = asked.len / 8, known = probe_hashes.len / 8, room = who.len / 8;
    uint64_t slots = directory.len / 4 ? directory.len / 4 - 1 : 0;
    if ((times && times_buffer.len / 8 != total) || low_ts.len / 8 != known || high_ts.len / 8 != known ||
        rows.len / 8 != room || room < 1 || position < 0 || position > wanted || s.shift > 63) {
        misfits("match_rows");
        goto done;
    }
    Py_BEGIN_ALLOW_THREADS
    count = 0;
    for (; position < wanted && count < room; position++) {
        int64_t probe = ask[position];
        uint64_t near = coming(s, ask, position + NEAR, wanted, probes, known);
        uint64_t far = coming(s, ask, position + FAR, wanted, probes, known);
        if (far < slots) __builtin_prefetch(slot_rows + far);
        if (near < slots) {
            __builtin_prefetch(hashes + slot_rows[near]);
            if (times) __builtin_prefetch(times + slot_rows[near]);
        }
        if (probe < 0 || probe >= known) { count = -1; break; }
        uint64_t hash = probes[probe], slot = part_of(s, hash);
        if (slot >= slots || slot_rows[slot] > slot_rows[slot + 1] || slot_rows[slot + 1] > total) { count = -1; break; }
        int64_t row = slot_rows[slot], end = slot_rows[slot + 1];
        int64_t first = lows[probe] > since ? lows[probe] : since, last = highs[probe];
        if (resume >= 0) {
            row = resume > row && resume < end ? resume : row;
            resume = -1;
        } else if (end - row > NARROW) {
            row = lower_bound(hashes, times, row, end, hash, first);
        }
        for (; row < end && hashes[row] <= hash; row++) {
            if (hashes[row] != hash || (times && times[row] < first)) continue;
            if (times && times[row] > last) break;
            if (count == room) { resume = row; break; }
            out_who[count] = probe;
            out_rows[count++] = row;
        }
        if (resume >= 0) break;
    }
    Py_END_ALLOW_THREADS
done:
    if (times_buffer.obj) PyBuffer_Release(&times_buffer);
    PyBuffer_Release(&directory), PyBuffer_Release(&run_hashes), PyBuffer_Release(&probe_hashes);
    PyBuffer_Release(&low_ts), PyBuffer_Release(&high_ts), PyBuffer_Release(&asked);
    PyBuffer_Release(&who), PyBuffer_Release(&rows);
    return count == -2 ? NULL : Py_BuildValue("LLL", (long long)count, position, resume);
}

/* build_bloom(hashes, low, shift, factor, words): sets the bits of sorted hashes in a filter. */
static PyObject *build_bloom(PyObject *self, PyObject *args) {
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
static PyObject *build_directory(PyObject *self, PyObject *args) {
    Py_buffer hashes, directory;
    Spread s;
    if (!PyArg_ParseTuple(args, "y*KKKw*", &hashes, &s.low, &s.shift, &s.factor, &directory)) return NULL;
    const uint64_t *hash = hashes.buf;
    uint32_t *begin = directory.buf;
    Py_ssize_t count = hashes.len / 8;
    uint64_t slots = directory.len / 4 ? directory.len / 4 - 1 : 0, next = 0;
    int bad = !slots || (uint64_t)count > UINT32_MAX || bad_spread(s, slots, hash, count);
    if (!bad) {
        Py_BEGIN_ALLOW_THREADS
        for (Py_ssize_t i = 0; i < count; i++) {
            uint64_t slot = part_of(s, hash[i]);
            while (next <= slot && next < slots) begin[next++] = (uint32_t)i;
        }
        while (next <= slots) begin[next++] = (uint32_t)count;
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&hashes), PyBuffer_Release(&directory);
    if (bad && misfits("build_directory")) return NULL;
    Py_RETURN_NONE;
}

/* sort_hashes(hashes, low, shift, order, prefix): the stable order by 32 bits of each hash, and those bits, ordered. */
static PyObject *sort_hashes(PyObject *self, PyObject *args) {
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

/* ---- Spark's xxhash64: XXH64 with a seed of its own for every row; see lsmstate.hashing. */

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
static PyObject *hash_longs(PyObject *self, PyObject *args) {
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
static PyObject *hash_bytes(PyObject *self, PyObject *args) {
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

static PyMethodDef methods[] = {
    {"filter_hashes", filter_hashes, METH_VARARGS, "Which sorted hashes a filter does not exclude."},
    {"match_rows", match_rows, METH_VARARGS, "Pairs of probes and rows of a run."},
    {"build_bloom", build_bloom, METH_VARARGS, "Sets the bits of sorted hashes in a filter."},
    {"build_directory", build_directory, METH_VARARGS, "Where the rows of each slot begin."},
    {"sort_hashes", sort_hashes, METH_VARARGS, "The stable order by 32 bits of each hash."},
    {"hash_longs", hash_longs, METH_VARARGS, "Spark's xxhash64 of numbers of 8 bytes."},
    {"hash_bytes", hash_bytes, METH_VARARGS, "Spark's xxhash64 of strings and binaries."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_kernel", "The inner loops of the engine.", 0, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__kernel(void) { return PyModule_Create(&module); }
