"""Fuzzing: every decoder of bytes from disk, fed with bytes that nobody has written.

`targets/` has one module for each decoder, `corpus/` what they start from and what was found, `mutate.py` changes that
are the same in every run. `python -m tests.fuzz TARGET` fuzzes one with atheris.
"""
