"""GPT-2 of 124 million parameters (Radford et al. 2019), token by token: specification and float64 reference.

The network of gpt2-124m, without dropout. At fp16 and bf16 all of it is in the half type, its cache too, and sums inside a layer are
float32. The cache holds keys and values of every block and position.
prefill: a prompt of 128 tokens fills an empty cache -> the greedy token after it. step: one more token of each sequence, at the next
position, over the cache and itself -> the greedy token after it. A sequence has 128 steps.

The tokens that a step is fed are given, not those of the step before: rounding may turn a choice, and frameworks would go on with
different texts. Their greedy tokens are computed and brought to the host all the same.

Parity: two sequences, one after the other, of three rows, 16 tokens of a prompt and 12 steps. Every logit of the cached steps is held
against the pass without a cache over all tokens at once. What an earlier sequence or another row left in the cache shows.
"""

import collections

import numpy as np

from bench.transformer import Transformer

BATCH = 1
VOCABULARY = 50304
NETWORK = Transformer(VOCABULARY, length=1024, layers=12, heads=12, width=768)
PROMPT = 128
GENERATED = 128
PARITY_ROWS = 3
PARITY_PROMPT = 16
PARITY_GENERATED = 12
# One batch for each of the two sequences; there is nothing to learn.
PARITY_RATES = (None, None)
BUCKETS = 64
MOST_RUNS = 4

PARAMETERS = NETWORK.parameters()


def draw_batch(random):
    """x (3, 28) int32, the tokens of one sequence of each row, and None, for there is nothing to learn.

    The first and the last id, that of the end of a text and the first of padding are among the tokens that are generated.
    """
    x = random.randint(0, VOCABULARY, (PARITY_ROWS, PARITY_PROMPT + PARITY_GENERATED)).astype("int32")
    x[0, PARITY_PROMPT : PARITY_PROMPT + 4] = 0, VOCABULARY - 1, 50256, 50257
    return x, None


def draw_sequence(seed, number, batch):
    """(batch, 256) int32 random tokens of a sequence, counted from 0: a prompt, and the tokens that are fed after it.

    No number comes twice in a cell: a server's cache of prompts would answer the second time from memory.
    """
    random = np.random.RandomState([seed % 2**32, seed // 2**32 % 2**32, number])
    return random.randint(0, VOCABULARY, (batch, PROMPT + GENERATED)).astype(np.int32)


def decoded(p, sequences, rounding):
    """tensor -> logits (N, vocabulary) of the prompts and of each step, without a cache. p: name -> array; sequences: of draw_batch."""
    p = {name: rounding.parameter(value) for name, value in p.items()}
    found = collections.OrderedDict()
    for number, x in enumerate(sequences, 1):
        logits = NETWORK.logits(p, x, rounding)[:, PARITY_PROMPT - 1 :]
        found.update((tensor_of(number, step), logits[:, step]) for step in range(PARITY_GENERATED + 1))
    return found


def tensor_of(number, step):
    """The name of the logits of a step of a sequence, both counted from 1; step 0: of the prompt."""
    return "sequence %d, %s" % (number, "step %d" % step if step else "prompt")
