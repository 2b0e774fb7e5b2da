"""python -m kernwright: the command line tool."""

from ._tool import main

main()
