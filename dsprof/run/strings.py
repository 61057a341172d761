"""How strings are kept in frames.

pandas keeps them as Arrow's where it can, the names of columns included. That saves memory where
there are many, but each look at a few costs several times as much as at Python's own.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

TEXT: Final = pd.StringDtype("pyarrow", na_value=np.nan)  #: of a column with a row per event


def of_python() -> None:
    """Keep all other strings as Python's, in this process: for one that is dsprof's own.

    A fifth of the time to judge a short run goes into looking at names.
    """
    pd.set_option("mode.string_storage", "python")
