/* The inner loops of the engine in C: the same results as the numpy code that calls them, several times sooner.
 *
 * They own no memory beyond a call, keep no state, and release the GIL while they work, so that two threads search two
 * runs at the same time. All lengths are checked before a loop begins, and whatever is read from a file (a directory,
 * offsets, rows) is checked before it is used as an index: a damaged or hostile file can make a function say so, never
 * read elsewhere. This header is what they share; the functions are in search.c, build.c, gather.c and hash.c.
 */
#ifndef LSMSTATE_KERNEL_H
#define LSMSTATE_KERNEL_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define BLOOM_BITS 6 /* of a hash, that choose a bit of its filter word */
#define NEAR 8       /* rows ahead of which what they lead to is fetched from memory, */
#define FAR 24       /* and what leads there */

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

static inline int misfits(const char *what) {
    PyErr_Format(PyExc_ValueError, "%s: the arrays do not fit each other", what);
    return 1;
}

static inline int bad_spread(Spread s, uint64_t parts, const uint64_t *hashes, Py_ssize_t count) {
    if (!count) return 0;
    return s.shift > 63 || hashes[0] < s.low || s.factor > parts << 32 || part_of(s, hashes[count - 1]) >= parts;
}

PyObject *filter_hashes(PyObject *self, PyObject *args);
PyObject *match_rows(PyObject *self, PyObject *args);
PyObject *build_bloom(PyObject *self, PyObject *args);
PyObject *build_directory(PyObject *self, PyObject *args);
PyObject *sort_hashes(PyObject *self, PyObject *args);
PyObject *take_fixed(PyObject *self, PyObject *args);
PyObject *take_offsets(PyObject *self, PyObject *args);
PyObject *take_bytes(PyObject *self, PyObject *args);
PyObject *hash_longs(PyObject *self, PyObject *args);
PyObject *hash_bytes(PyObject *self, PyObject *args);

#endif
