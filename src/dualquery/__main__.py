"""`python -m dualquery` is the command line."""

from dualquery.cli import main

if __name__ == "__main__":
    main()
