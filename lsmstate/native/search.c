/* Searching sorted runs: which of many hashes a filter does not exclude, and which rows of a run have them. */
#include "kernel.h"

#define NARROW 16 /* rows of a slot up to which they are looked at one by one */

/* filter_hashes(words, hashes, low, shift, factor, out) -> count: which sorted hashes a filter does not exclude. */
PyObject *filter_hashes(PyObject *self, PyObject *args) {
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
PyObject *match_rows(PyObject *self, PyObject *args) {
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
