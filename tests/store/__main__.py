"""`python -m tests.store` runs the full tier."""

import sys

from tests.store.bars import main

if __name__ == "__main__":
    sys.exit(main())
