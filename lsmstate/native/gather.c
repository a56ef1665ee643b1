/* Gathering rows: values and strings from anywhere in a column, side by side. What is asked for next is fetched early. */
#include "kernel.h"

#define CHUNK 32 /* bytes that are copied at once where so many may be read and written */

/* Row numbers of 4 or 8 bytes. */
typedef struct {
    const void *at;
    int width;
    int64_t count;
} Rows;

static inline int64_t row_at(Rows rows, int64_t i) {
    return rows.width == 4 ? (int64_t)((const uint32_t *)rows.at)[i] : ((const int64_t *)rows.at)[i];
}

static inline int64_t offset_at(const void *offsets, int width, int64_t row) {
    return width == 4 ? (int64_t)((const int32_t *)offsets)[row] : ((const int64_t *)offsets)[row];
}

/* Fetches a row's value, if there is such a row. */
static inline void fetch(const char *values, int64_t width, Rows rows, int64_t i, int64_t known) {
    if (i >= rows.count) return;
    int64_t row = row_at(rows, i);
    if (row >= 0 && row < known) __builtin_prefetch(values + row * width);
}

/* Copies values of a width that the compiler knows; 0 if a row does not exist. */
static inline __attribute__((always_inline)) int copy_all(const char *values, int64_t width, int64_t known, Rows rows,
                                                          char *out) {
    for (int64_t i = 0; i < rows.count; i++) {
        fetch(values, width, rows, i + FAR, known);
        int64_t row = row_at(rows, i);
        if (row < 0 || row >= known) return 0;
        memcpy(out + i * width, values + row * width, width);
    }
    return 1;
}

/* take_fixed(values, width, rows, row_width, out): out[i] = values[rows[i]]. */
PyObject *take_fixed(PyObject *self, PyObject *args) {
    Py_buffer values, asked, out;
    long long width;
    Rows rows;
    if (!PyArg_ParseTuple(args, "y*Ly*iw*", &values, &width, &asked, &rows.width, &out)) return NULL;
    int good = width > 0 && (rows.width == 4 || rows.width == 8) && asked.len % rows.width == 0;
    if (good) {
        rows.at = asked.buf, rows.count = asked.len / rows.width;
        good = out.len / width == rows.count && out.len % width == 0;
    }
    if (good) {
        const char *from = values.buf;
        char *to = out.buf;
        int64_t known = values.len / width;
        Py_BEGIN_ALLOW_THREADS
        switch (width) {
            case 1: good = copy_all(from, 1, known, rows, to); break;
            case 2: good = copy_all(from, 2, known, rows, to); break;
            case 4: good = copy_all(from, 4, known, rows, to); break;
            case 8: good = copy_all(from, 8, known, rows, to); break;
            case 16: good = copy_all(from, 16, known, rows, to); break;
            default: good = copy_all(from, width, known, rows, to);
        }
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&values), PyBuffer_Release(&asked), PyBuffer_Release(&out);
    if (!good && misfits("take_fixed")) return NULL;
    Py_RETURN_NONE;
}

/* take_offsets(offsets, width, data_bytes, rows, row_width, out) -> bytes: the offsets of the strings of some rows once
 * they stand side by side, in the width of `offsets`; -1 if they do not fit in it. */
PyObject *take_offsets(PyObject *self, PyObject *args) {
    Py_buffer offsets, asked, out;
    int width;
    long long data_bytes;
    Rows rows;
    int64_t end = 0;
    if (!PyArg_ParseTuple(args, "y*iLy*iw*", &offsets, &width, &data_bytes, &asked, &rows.width, &out)) return NULL;
    int good = (width == 4 || width == 8) && (rows.width == 4 || rows.width == 8) && asked.len % rows.width == 0;
    if (good) {
        rows.at = asked.buf, rows.count = asked.len / rows.width;
        good = out.len / width == rows.count + 1 && out.len % width == 0 && offsets.len >= width;
    }
    if (good) {
        int64_t known = offsets.len / width - 1, most = width == 4 ? INT32_MAX : INT64_MAX;
        Py_BEGIN_ALLOW_THREADS
        for (int64_t i = 0; good && end >= 0 && i <= rows.count; i++) {
            if (width == 4) ((int32_t *)out.buf)[i] = (int32_t)end;
            else ((int64_t *)out.buf)[i] = end;
            if (i == rows.count) break;
            fetch(offsets.buf, width, rows, i + FAR, known);
            int64_t row = row_at(rows, i);
            good = row >= 0 && row < known;
            if (!good) break;
            int64_t from = offset_at(offsets.buf, width, row), to = offset_at(offsets.buf, width, row + 1);
            good = 0 <= from && from <= to && to <= data_bytes;
            end = !good || to - from > most - end ? -1 : end + (to - from);
        }
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&offsets), PyBuffer_Release(&asked), PyBuffer_Release(&out);
    if (!good && misfits("take_offsets")) return NULL;
    return PyLong_FromLongLong(end);
}

/* take_bytes(offsets, width, data, rows, row_width, out) -> bytes: the strings of some rows, side by side in `out`,
 * which may be longer than they are. */
PyObject *take_bytes(PyObject *self, PyObject *args) {
    Py_buffer offsets, data, asked, out;
    int width;
    Rows rows;
    int64_t end = 0;
    if (!PyArg_ParseTuple(args, "y*iy*y*iw*", &offsets, &width, &data, &asked, &rows.width, &out)) return NULL;
    int good = (width == 4 || width == 8) && (rows.width == 4 || rows.width == 8) && asked.len % rows.width == 0 &&
               offsets.len >= width;
    if (good) {
        rows.at = asked.buf, rows.count = asked.len / rows.width;
        const char *from = data.buf;
        char *to = out.buf;
        int64_t known = offsets.len / width - 1;
        Py_BEGIN_ALLOW_THREADS
        for (int64_t i = 0; i < rows.count; i++) {
            fetch(offsets.buf, width, rows, i + FAR, known);
            if (i + NEAR < rows.count) {
                int64_t next = row_at(rows, i + NEAR);
                if (next >= 0 && next < known) /* wherever it may lead: fetching is not reading */
                    __builtin_prefetch((const void *)((uintptr_t)from + (uintptr_t)offset_at(offsets.buf, width, next)));
            }
            int64_t row = row_at(rows, i);
            good = row >= 0 && row < known;
            if (!good) break;
            int64_t start = offset_at(offsets.buf, width, row), stop = offset_at(offsets.buf, width, row + 1);
            good = 0 <= start && start <= stop && stop <= data.len && stop - start <= out.len - end;
            if (!good) break;
            int64_t size = stop - start;
            if (data.len - stop >= CHUNK && out.len - end - size >= CHUNK)
                for (int64_t k = 0; k < size; k += CHUNK) memcpy(to + end + k, from + start + k, CHUNK);
            else memcpy(to + end, from + start, size);
            end += size;
        }
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&offsets), PyBuffer_Release(&data), PyBuffer_Release(&asked), PyBuffer_Release(&out);
    if (!good && misfits("take_bytes")) return NULL;
    return PyLong_FromLongLong(end);
}
