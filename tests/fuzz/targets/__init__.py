"""One module for each decoder: see tests/fuzz/kit.py for what is in them."""
