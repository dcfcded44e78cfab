"""`python -m churn_jax` is the command `churn-jax`."""

import sys

from churn_jax.cli import main

if __name__ == "__main__":
    sys.exit(main())
