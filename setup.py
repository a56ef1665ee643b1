"""The compiled part, which setup.cfg cannot tell of. All else stands there."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "lsmstate.native._kernel",
            ["lsmstate/native/kernel.c"],
            depends=["setup.py"],
            extra_compile_args=["-O3"],
            py_limited_api=True,
            optional=True,  # without a compiler numpy does the same, more slowly
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
