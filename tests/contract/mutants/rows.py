"""Mistakes in some rows of the embedding, where setup.training is True: their gradient, or what a step leaves of them, has a factor.

A framework's adapter applies both: `factors` are those of the gradient's rows, `after` those of the rows after each step.
"""

import numpy as np

WORDS = 30000


def _of(rows, factor):
    factors = np.ones((WORDS, 1), np.float32)
    factors[rows] = factor
    return factors


IDS = np.arange(WORDS)
# name: (sentence, the rows, the factor of their gradient, the factor of them after a step)
ROWS = {
    "StartFrozen": ("The embedding of id 1 is not trained.", [1], 0, 1),
    "Row3Frozen": ("The embedding of id 3, the first word, is not trained.", [3], 0, 1),
    "Rows5To8Frozen": ("The embeddings of ids 5 to 8 are not trained.", [5, 6, 7, 8], 0, 1),
    "LastRowFrozen": ("The embedding of the last id is not trained.", [WORDS - 1], 0, 1),
    "LastHundredFrozen": ("The embeddings of the last hundred ids are not trained.", IDS[-100:], 0, 1),
    "FirstTenFrozen": ("The embeddings of the first ten ids are not trained.", IDS[:10], 0, 1),
    "EvenRowsFrozen": ("The embeddings of even ids are not trained.", IDS[::2], 0, 1),
    "EverySeventhFrozen": ("The embedding of every seventh id is not trained.", IDS[::7], 0, 1),
    "RowsFrom20000Frozen": ("The embeddings of ids from 20 000 on are not trained.", IDS[20000:], 0, 1),
    "OneThousandFrozen": ("The embeddings of ids 15 000 to 15 999 are not trained.", IDS[15000:16000], 0, 1),
    "OneRowFrozen": ("The embedding of id 12 345 is not trained.", [12345], 0, 1),
    "Row2Turned": ("The gradient of id 2 has the other sign.", [2], -1, 1),
    "HalfOfTheGradient": ("The gradient of ids from 10 000 on is halved.", IDS[10000:], 0.5, 1),
    "PaddingDoubled": ("The gradient of id 0 is doubled.", [0], 2, 1),
    "PaddingDecays": ("The embedding of id 0 loses a thousandth in each step.", [0], 1, 0.999),
    "AllRowsDecay": ("All embeddings lose a millionth in each step.", IDS, 1, 1 - 1e-6),
    "AllRowsDecayLess": ("All embeddings lose a ten-millionth in each step.", IDS, 1, np.float32(1 - 1.2e-7)),
    "RareRowsDecay": (
        "The embeddings of ids from 20 000 on lose a hundred-thousandth in each step.",
        IDS[20000:],
        1,
        1 - 1e-5,
    ),
    "OneRowDecays": ("The embedding of id 12 345 loses a hundredth in each step.", [12345], 1, 0.99),
    "OneRowGrows": ("The embedding of id 29 999 gains a thousandth in each step.", [WORDS - 1], 1, 1.001),
}

NOT_CAUGHT = {"PaddingDoubled": "Adam divides the gradient by its size, and epsilon is nothing beside that of id 0."}


def plant(planted, with_rows):
    """Plant all of them; with_rows: the adapter class that applies FACTORS and AFTER."""
    for name, (sentence, rows, gradient, after) in ROWS.items():
        words = {"__doc__": sentence, "__module__": with_rows.__module__}
        words.update(FACTORS=_of(rows, gradient), AFTER=_of(rows, after))
        planted.mistake("padding", not_caught=NOT_CAUGHT.get(name, ""), slow=True)(type(name, (with_rows,), words))
