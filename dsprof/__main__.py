"""`python -m dsprof`."""

from dsprof.cli import main

main()
