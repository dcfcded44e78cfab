"""timm's networks where torchvision is missing or belongs to another torch.

timm imports torchvision for its image transforms and for the class of one layer, and
pip lets torchvision choose torch. The networks need neither, so they are imported
with an empty torchvision, which is removed afterwards.
"""

import contextlib
import importlib
import importlib.abc
import importlib.machinery
import sys


class _Names(type):
    """A class whose attributes are their own names, such as members of an enum."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return name


class _Empty(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds torchvision and all below it: modules of which every name is a class."""

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torchvision":
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        def attribute(name):
            if name.startswith("__"):
                raise AttributeError(name)
            return _Names(name, (), {})

        module.__getattr__ = attribute


@contextlib.contextmanager
def _empty_torchvision():
    finder = _Empty()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in [n for n in sys.modules if n.split(".")[0] == "torchvision"]:
            del sys.modules[name]


def import_timm():
    """timm, with torchvision if that can be imported.

    Raises:
        ImportError: timm is not installed.
    """
    try:
        importlib.import_module("torchvision")
    except (ImportError, RuntimeError, OSError):  # absent, or of another torch
        with _empty_torchvision():
            return importlib.import_module("timm")
    return importlib.import_module("timm")
