"""The largest cells of a release of codes, drawn as bars."""

from __future__ import annotations

import numpy as np

from dualquery.mechanisms.filed import Filed
from dualquery.mechanisms.lists.artefact import CellFractions
from dualquery.releases.pictures import Picture
from dualquery.releases.plots import histogram

SHOWN = 15


def cell_pictures(artefact: Filed) -> list[Picture]:
    """The records that most of the table is, as far as they were asked about."""
    assert isinstance(artefact, CellFractions)
    most = np.argsort(-artefact.fraction, kind="stable")[:SHOWN]
    if not len(most):
        return []
    labels = [" · ".join(artefact.catalogue.texts[place].tolist()) for place in most.tolist()]
    name = ", ".join(column.name for column in artefact.domain.columns)
    caption = f"the {len(most)} largest of {len(artefact.fraction):,} that were asked about"
    return [Picture(name, caption, histogram(labels, artefact.fraction[most], name=name))]
