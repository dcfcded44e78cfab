"""`python -m churn_compare` is the command `churn-compare`."""

import sys

from churn_compare.cli import main

if __name__ == "__main__":
    sys.exit(main())
