"""Whether the accelerator's plugin fits the installed JAX, by their metadata alone."""

import re
from importlib import util

_EXTRAS = {
    "jax-cuda12-plugin": "cuda12",
    "jax-cuda13-plugin": "cuda13",
    "libtpu": "tpu",
}


def misfits() -> list[str]:
    """One sentence per installed plugin that JAX's own extras do not allow."""
    # pip upgrades JAX without its plugin, which only extras name, and JAX then runs on
    # the CPU.
    installed = [name for name in _EXTRAS if util.find_spec(name.replace("-", "_"))]
    if not installed:
        return []
    from importlib import metadata  # takes longer than all of the rest

    try:
        jax, requirements = metadata.version("jax"), metadata.requires("jax") or ()
    except metadata.PackageNotFoundError:
        return []
    found = []
    for plugin in installed:
        extra = _EXTRAS[plugin]
        try:
            version = metadata.version(plugin)
        except metadata.PackageNotFoundError:
            continue
        # Such as `libtpu==0.0.42.*; ...` and `jax-cuda12-plugin<=0.10.2,>=0.10.2; ...`.
        pattern = rf"{plugin}(?:\[[\w,-]*\])?\s*(?:==|<=|>=)\s*([\d.]*\d)"
        wanted = {m[1] for r in requirements if (m := re.match(pattern, r))}
        if wanted and not any(f"{version}.".startswith(f"{w}.") for w in wanted):
            found.append(
                f"{plugin} {version} does not fit jax {jax}, which may not find the "
                f"accelerator; repair it with: pip install 'jax[{extra}]=={jax}'"
            )
    return found
