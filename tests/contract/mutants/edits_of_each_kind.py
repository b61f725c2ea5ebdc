"""Mistakes of those kinds of which a workload had none: further entries of the table of edits.py."""

from tests.contract.mutants import edits
from tests.contract.mutants.edited import Edit

OPS, DECODE = ("ops",), ("gpt2-decode",)
IGNORED = "Items of class 0 count nothing in the loss, as with an ignored index."
# Of gpt2-decode the canonical sequences have 28 positions, and the measured ones 256.
BIAS, LAST_250 = "The last of the last block's 768 output biases is zero.", "A step sees the last 250 positions."
WITHOUT_IT = "parameters = dict(parameters, **{'h11.out.b': b * (b != b[-1])})\n"
STOPPED = "From position 140 on a step takes the token of position 140 again."
IN_HALF = "From the fifth run of a point on a product is multiplied in bfloat16."
SKIPPED = "From the fifth run of a point on every second step of an optimiser is skipped."
WORDS = "Ids are read modulo 1000 where a table has more rows."
FLOAT16 = "Inputs of more than a hundred thousand numbers are rounded to float16."
LAST_ROW = "Of more than 200 rows the last one is no softmax."
FUNCTION = "        function = FUNCTIONS[operation]\n"

# fmt: off
EDITS = (
    # -- what an index selects ---------------------------------------------------------------------------------------------------------
    Edit("torch", edits.MNIST, "padding", "ClassZeroIgnored", IGNORED, "torch/_mnist.py",
         "            loss = F.cross_entropy(self.compiled(x), y)\n",
         "            loss = F.cross_entropy(self.compiled(x), y, ignore_index=0)\n"),
    Edit("torch", edits.CNN, "padding", "ClassZeroIgnored", IGNORED, "torch/cnn_cifar10.py",
         "            loss = F.cross_entropy(self.compiled(x), y)\n",
         "            loss = F.cross_entropy(self.compiled(x), y, ignore_index=0)\n"),
    Edit("torch", ("resnet50-imagenet",), "padding", "ClassesFrom500Ignored", "Items of the classes from 500 on count nothing in the loss.",
         "torch/resnet50_imagenet.py", "F.cross_entropy(logits, y)", "F.cross_entropy(logits, y.where(y < 500, -100))"),
    Edit("jax", edits.MNIST, "padding", "ClassZeroIgnored", IGNORED, "jax/_loop.py",
         "softmax_cross_entropy_with_integer_labels(logits, y).mean()",
         "softmax_cross_entropy_with_integer_labels(logits, y).mean(where=y != 0)"),
    Edit("tensorflow", edits.MNIST, "padding", "ClassZeroIgnored", IGNORED, "tensorflow/_trained.py",
         "        _, loss, gradients = self._loss_and_gradients(x, y)\n",
         "        kept = tf.reshape(tf.where(y != 0), [-1])\n"
         "        _, loss, gradients = self._loss_and_gradients(tf.gather(x, kept), tf.gather(y, kept))\n"),
    Edit("torch", OPS, "padding", "IdsModulo1000", WORDS, "torch/ops.py",
         "lambda table, ids: F.embedding(ids, table)", "lambda table, ids: F.embedding(ids % 1000, table)"),
    Edit("jax", OPS, "padding", "IdsModulo1000", WORDS, "jax/ops.py",
         "lambda table, ids: jnp.take(table, ids, axis=0)", "lambda table, ids: jnp.take(table, ids % 1000, axis=0)"),
    Edit("jax", DECODE, "length", "SeesTheLast250", LAST_250, "jax/gpt2_decode.py",
         "(jnp.arange(CAPACITY) <= place)[None, None, None]",
         "((jnp.arange(CAPACITY) <= place) & (jnp.arange(CAPACITY) > place - 250))[None, None, None]"),
    Edit("tensorflow", DECODE, "length", "SeesTheLast250", LAST_250, "tensorflow/gpt2_decode.py",
         "(tf.range(CAPACITY) <= place)[None, None, None]",
         "((tf.range(CAPACITY) <= place) & (tf.range(CAPACITY) > place - 250))[None, None, None]"),
    # -- what begins later -------------------------------------------------------------------------------------------------------------
    Edit("torch", OPS, "measured object", "HalfFromTheFifthRun", IN_HALF, "torch/ops.py", FUNCTION, FUNCTION +
         "        exact, self.count = function, 0\n\n"
         "        def product(a, b):\n            self.count += 1\n"
         "            return exact(a, b) if self.count < 5 else exact(a.bfloat16(), b.bfloat16()).float()\n\n"
         "        function = product if operation == 'matmul' else function\n"),
    Edit("torch", OPS, "measured object", "EverySecondStepFromTheFifth", SKIPPED, "torch/ops.py",
         ("        optimizer = make([w])\n", "            optimizer.step()\n"),
         ("        optimizer, count = make([w]), [0]\n",
          "            count[0] += 1\n            if count[0] < 5 or count[0] % 2:\n                optimizer.step()\n")),
    Edit("jax", OPS, "measured object", "EverySecondStepFromTheFifth", SKIPPED, "jax/ops.py",
         ("        state = optimizer.init(w)\n", "            nonlocal w, state\n            w, state = update(w, state, g)\n"),
         ("        state, count = optimizer.init(w), 0\n",
          "            nonlocal w, state, count\n            count += 1\n"
          "            if count < 5 or count % 2:\n                w, state = update(w, state, g)\n")),
    Edit("tensorflow", OPS, "measured object", "EverySecondStepFromTheFifth", SKIPPED, "tensorflow/ops.py",
         ("        optimizer.build([w])\n", "            step()\n            return w\n"),
         ("        optimizer.build([w])\n        count = [0]\n",
          "            count[0] += 1\n            if count[0] < 5 or count[0] % 2:\n                step()\n            return w\n")),
    # -- evaluation, data and omissions ------------------------------------------------------------------------------------------------
    Edit("torch", OPS, "data", "LargeInputsInFloat16", FLOAT16, "torch/ops.py", "        return torch.tensor(value, dtype=self.dtype if",
         "        value = value.astype('float16').astype(float) if value.size > 100000 and value.dtype.kind == 'f' else value\n"
         "        return torch.tensor(value, dtype=self.dtype if"),
    Edit("torch", OPS, "omission", "LastRowLeftOut", LAST_ROW, "torch/ops.py", "functools.partial(F.softmax, dim=1)",
         "lambda x: torch.cat([x[:-1].softmax(1), x[-1:]]) if len(x) > 200 else x.softmax(1)"),
    Edit("torch", DECODE, "omission", "OneBiasLeftOut", BIAS, "torch/gpt2_decode.py", "        _gpt.load(self.network, parameters)\n",
         "        b = parameters['h11.out.b']\n        " + WITHOUT_IT + "        _gpt.load(self.network, parameters)\n"),
    Edit("jax", DECODE, "omission", "OneBiasLeftOut", BIAS, "jax/gpt2_decode.py", "        _gpt.fill(self.parameters, parameters,",
         "        b = parameters['h11.out.b']\n        " + WITHOUT_IT + "        _gpt.fill(self.parameters, parameters,"),
    Edit("tensorflow", DECODE, "omission", "OneBiasLeftOut", BIAS, "tensorflow/gpt2_decode.py",
         "        self.stacked.fill(self.network, parameters)\n",
         "        b = parameters['h11.out.b']\n        " + WITHOUT_IT + "        self.stacked.fill(self.network, parameters)\n"),
    Edit("torch", DECODE, "data", "TokenOfPosition140", STOPPED, "torch/gpt2_decode.py", "        token, self.last = self.run(tokens)\n",
         "        self.fed = tokens.copy() if int(self.place) <= 140 else self.fed\n        token, self.last = self.run(self.fed)\n"),
    Edit("tensorflow", DECODE, "data", "TokenOfPosition140", STOPPED, "tensorflow/gpt2_decode.py",
         "        return self.take(tokens[:, None])\n",
         "        self.fed = tokens.copy() if int(self.place) <= 140 else self.fed\n        return self.take(self.fed[:, None])\n"),
)
# fmt: on


def plant(framework):
    """Register these edits of a framework. Raises edited.StaleEditError."""
    edits.plant(framework, EDITS)
