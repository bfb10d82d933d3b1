"""`python -m doublefeature` is the command `doublefeature`."""

from doublefeature.cli import main

main()
