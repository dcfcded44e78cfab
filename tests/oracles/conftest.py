"""Nothing here is collected without torch: `make test-oracles` has it."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("torch") else ["*.py"]
