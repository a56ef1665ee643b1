/* Searching sorted runs: which of many hashes a filter does not exclude, and which rows of a run have them. */
#include "kernel.h"

#define NARROW 16 /* rows of a slot up to which they are looked at one by one */

/* A filter, and where a hash falls in it. */
typedef struct {
    const uint64_t *words;
    uint64_t parts;
    Spread spread;
} Filter;

/* Appends to `found` those from `first` on that the filter does not exclude; gives how many there are then. */
static Py_ssize_t pass_one_by_one(Filter f, const uint64_t *hash, Py_ssize_t first, Py_ssize_t count, int64_t *found,
                                  Py_ssize_t kept) {
    for (Py_ssize_t i = first; i < count; i++) {
        uint64_t at = part_of(f.spread, hash[i]), mask = bloom_mask(hash[i]);
        found[kept] = i;
        kept += at < f.parts && (f.words[at] & mask) == mask;
    }
    return kept;
}

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define LANES 4

static int has_vectors(void) { return __builtin_cpu_supports("avx2"); }

/* The same, four hashes at once. Requires: factor and scaled distances have 32 bits. */
__attribute__((target("avx2"))) static Py_ssize_t pass_by_fours(Filter f, const uint64_t *hash, Py_ssize_t count,
                                                                int64_t *found) {
    const __m256i low = _mm256_set1_epi64x((int64_t)f.spread.low), one = _mm256_set1_epi64x(1);
    const __m256i factor = _mm256_set1_epi64x((int64_t)f.spread.factor), six = _mm256_set1_epi64x(63);
    const __m256i parts = _mm256_set1_epi64x((int64_t)f.parts);
    const __m128i shift = _mm_cvtsi64_si128((int64_t)f.spread.shift);
    Py_ssize_t kept = 0, i = 0;
    for (; i + LANES <= count; i += LANES) {
        __m256i h = _mm256_loadu_si256((const __m256i *)(hash + i));
        __m256i distance = _mm256_srl_epi64(_mm256_sub_epi64(h, low), shift);
        __m256i at = _mm256_srli_epi64(_mm256_mul_epu32(distance, factor), 32);
        __m256i inside = _mm256_cmpgt_epi64(parts, at);
        __m256i word = _mm256_mask_i64gather_epi64(_mm256_setzero_si256(), (const long long *)f.words, at, inside, 8);
        __m256i mask = _mm256_sllv_epi64(one, _mm256_and_si256(h, six));
        mask = _mm256_or_si256(mask, _mm256_sllv_epi64(one, _mm256_and_si256(_mm256_srli_epi64(h, BLOOM_BITS), six)));
        mask = _mm256_or_si256(mask, _mm256_sllv_epi64(one, _mm256_and_si256(_mm256_srli_epi64(h, 2 * BLOOM_BITS), six)));
        mask = _mm256_or_si256(mask, _mm256_sllv_epi64(one, _mm256_and_si256(_mm256_srli_epi64(h, 3 * BLOOM_BITS), six)));
        __m256i same = _mm256_cmpeq_epi64(_mm256_and_si256(word, mask), mask);
        for (int bits = _mm256_movemask_pd(_mm256_castsi256_pd(same)); bits; bits &= bits - 1)
            found[kept++] = i + __builtin_ctz(bits);
    }
    return pass_one_by_one(f, hash, i, count, found, kept);
}
#else
static int has_vectors(void) { return 0; }
static Py_ssize_t pass_by_fours(Filter f, const uint64_t *hash, Py_ssize_t count, int64_t *found) {
    return pass_one_by_one(f, hash, 0, count, found, 0);
}
#endif

/* filter_hashes(words, hashes, low, shift, factor, out) -> count: which sorted hashes a filter does not exclude. */
PyObject *filter_hashes(PyObject *self, PyObject *args) {
    Py_buffer words, hashes, out;
    Filter f;
    if (!PyArg_ParseTuple(args, "y*y*KKKw*", &words, &hashes, &f.spread.low, &f.spread.shift, &f.spread.factor, &out))
        return NULL;
    const uint64_t *hash = hashes.buf;
    Py_ssize_t count = hashes.len / 8, kept = 0;
    f.words = words.buf, f.parts = words.len / 8;
    int bad = out.len < hashes.len || bad_spread(f.spread, f.parts, hash, count);
    if (!bad) {
        uint64_t farthest = count ? (hash[count - 1] - f.spread.low) >> f.spread.shift : 0;
        int fours = farthest <= UINT32_MAX && f.spread.factor <= UINT32_MAX && f.parts <= INT64_MAX && has_vectors();
        Py_BEGIN_ALLOW_THREADS
        kept = fours ? pass_by_fours(f, hash, count, out.buf) : pass_one_by_one(f, hash, 0, count, out.buf, 0);
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
 * A count of -1 says that the directory is damaged, or that rows are not in order. */
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
        int found = 0; /* whether what is before (hash, first) lies behind us, if rows are in order */
        if (resume > row && resume < end) {
            row = resume, found = 1;
        } else if (end - row > NARROW) {
            row = lower_bound(hashes, times, row, end, hash, first), found = 1;
        }
        resume = -1;
        for (; row < end && hashes[row] <= hash; row++) {
            if (hashes[row] != hash || (times && times[row] < first)) {
                if (!found) continue;
                count = -1; /* else a hostile run has us walk all of it for every probe */
                break;
            }
            if (times && times[row] > last) break;
            if (count == room) { resume = row; break; }
            out_who[count] = probe;
            out_rows[count++] = row;
        }
        if (resume >= 0 || count < 0) break;
    }
    Py_END_ALLOW_THREADS
done:
    if (times_buffer.obj) PyBuffer_Release(&times_buffer);
    PyBuffer_Release(&directory), PyBuffer_Release(&run_hashes), PyBuffer_Release(&probe_hashes);
    PyBuffer_Release(&low_ts), PyBuffer_Release(&high_ts), PyBuffer_Release(&asked);
    PyBuffer_Release(&who), PyBuffer_Release(&rows);
    return count == -2 ? NULL : Py_BuildValue("LLL", (long long)count, position, resume);
}
