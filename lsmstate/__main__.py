"""`python -m lsmstate` is the command `lsmstate`."""

import sys

from lsmstate.cli import main

if __name__ == "__main__":
    sys.exit(main())
