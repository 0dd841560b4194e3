"""What leaves the house: releases, their certificates and reports, and their evaluation by the curator.

The package is callable, so that `dualquery.release(...)` makes a release although `dualquery.release` is
also the name of this package.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _CallablePackage(ModuleType):
    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """See `dualquery.release.making.release`."""
        from dualquery.release.making import release

        return release(*arguments, **named)


sys.modules[__name__].__class__ = _CallablePackage
