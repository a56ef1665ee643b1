/* The module `_kernel`; see kernel.h. */
#include "kernel.h"

static PyMethodDef methods[] = {
    {"filter_hashes", filter_hashes, METH_VARARGS, "Which sorted hashes a filter does not exclude."},
    {"match_rows", match_rows, METH_VARARGS, "Pairs of probes and rows of a run."},
    {"build_bloom", build_bloom, METH_VARARGS, "Sets the bits of sorted hashes in a filter."},
    {"build_directory", build_directory, METH_VARARGS, "Where the rows of each slot begin."},
    {"sort_hashes", sort_hashes, METH_VARARGS, "The stable order by 32 bits of each hash."},
    {"take_fixed", take_fixed, METH_VARARGS, "Some values of a fixed width."},
    {"take_offsets", take_offsets, METH_VARARGS, "Where some strings lie once they stand side by side."},
    {"take_bytes", take_bytes, METH_VARARGS, "Some strings, side by side."},
    {"hash_longs", hash_longs, METH_VARARGS, "Spark's xxhash64 of numbers of 8 bytes."},
    {"hash_bytes", hash_bytes, METH_VARARGS, "Spark's xxhash64 of strings and binaries."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_kernel", "The inner loops of the engine.", 0, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__kernel(void) { return PyModule_Create(&module); }
