"""`python -m doublefeature` is the command `doublefeature`."""

from doublefeature.cli import main

if __name__ == "__main__":
    main()
