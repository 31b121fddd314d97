"""The one place that imports NumPy: with one BLAS thread, unless the user asked for more.

The matrices are small: a second BLAS thread costs twice the CPU for a few percent of wall time, and on a busy machine
its spin-waiting makes everything slower. The setting is read when NumPy loads, and taken back for child processes.
"""

from __future__ import annotations

import os

_ONE_THREAD = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
_ours = [] if any(name in os.environ for name in _ONE_THREAD) else list(_ONE_THREAD)
for _name in _ours:
    os.environ[_name] = "1"
try:
    import numpy as np
finally:
    for _name in _ours:
        del os.environ[_name]

__all__ = ["np"]
