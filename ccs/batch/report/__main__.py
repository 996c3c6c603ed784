"""`python -m batch.report`: see `clip-ccs report --help`."""

import sys

from ccs.batch.report import main

if __name__ == "__main__":
    sys.exit(main())
