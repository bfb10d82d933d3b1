"""`python -m tests.correctness` runs the full tier."""

import sys

from tests.correctness.bars import main

if __name__ == "__main__":
    sys.exit(main())
