"""The mechanisms of special tables by name, and which of them is preferred where the user names none.

Of each kind of table the first that can be paid for is taken (`choose`). The evidence is in docs/learners.md, made
by `experiments/cuts.py`, `experiments/distances.py` and `experiments/sparse.py`.
"""

from __future__ import annotations

from typing import Any

from dualquery.mechanisms.coarsenings import COARSENINGS
from dualquery.mechanisms.coordinate_wise import COORDINATE_WISE
from dualquery.mechanisms.distance_curves import DISTANCE_CURVES
from dualquery.mechanisms.frieze_kannan import FRIEZE_KANNAN
from dualquery.mechanisms.mechanism import Mechanism
from dualquery.mechanisms.noisy_cells import NOISY_CELLS
from dualquery.mechanisms.touched_weights import TOUCHED_WEIGHTS

AnyMechanism = Mechanism[Any, Any]

# From the best on, each with the reason for being where it is.
PREFERENCES: dict[str, tuple[tuple[AnyMechanism, str], ...]] = {
    "graph": (
        (COARSENINGS, "Chosen because Gaussian noise can be paid for, where coarsenings answer every cut."),
        (FRIEZE_KANNAN, "Chosen because Gaussian noise cannot be paid for."),
    ),
    "points": (
        (DISTANCE_CURVES, "Chosen because Gaussian noise can be paid for, where curves answer every point."),
        (COORDINATE_WISE, "Chosen because Gaussian noise cannot be paid for."),
    ),
    "codes": (
        (NOISY_CELLS, "Chosen because one noisy histogram answers every look-up and every list."),
        (TOUCHED_WEIGHTS, "Chosen because a histogram cannot be paid for."),
    ),
}

SPECIAL: dict[str, AnyMechanism] = {
    mechanism.name: mechanism for chosen in PREFERENCES.values() for mechanism, _ in chosen
}
