"""The compiled part, which setup.cfg cannot tell of. All else stands there."""

from setuptools import Extension, setup

NATIVE = "lsmstate/native/"
PARTS = ["kernel.c", "search.c", "build.c", "gather.c", "hash.c"]

setup(
    ext_modules=[
        Extension(
            "lsmstate.native._kernel",
            [NATIVE + part for part in PARTS],
            depends=["setup.py", NATIVE + "kernel.h"],
            extra_compile_args=["-O3"],
            py_limited_api=True,
            optional=True,  # without a compiler numpy does the same, more slowly
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
