"""The Space's entry: `python app.py --help`."""

import sys

from ccs.app.__main__ import main

if __name__ == "__main__":
    sys.exit(main())
