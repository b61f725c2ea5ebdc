"""Names that options, specifications and plans share, as types. `bench/rules.py` has the same names as values for the images.

Only `typing` is imported here: the command line needs these types before it knows which command runs.
"""

from __future__ import annotations

from typing import Literal

PresetName = Literal["quick", "standard", "full"]
# What stays when several devices share the work: weak keeps the batch of each device, strong the batch of all together.
ScalingName = Literal["weak", "strong"]
