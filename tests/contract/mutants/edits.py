"""The table of the mistakes that are text: one entry a mistake, planted in each of its workloads (tests/contract/mutants/edited.py)."""

from tests.contract.mutants import registry
from tests.contract.mutants.edited import Edit, adapter_of

GPT, LLAMA, MOE, BYTES = ("gpt-bytes",), ("llama-bytes",), ("moe-bytes",), ("gpt-bytes", "llama-bytes", "moe-bytes")
MNIST, DEEP = ("mlp-mnist", "cnn-mnist"), ("densenet121-chestxray", "resnet50-imagenet")
# Of a step of PyTorch's language models, and where parameters are loaded.
STEP, LOADED = (
    "        _, loss = self.loss(x, y)\n",
    "        self.parts = load(self.network, parameters, self.own_name)\n",
)
COUNTED = "        self.count += 1\n"
FROM_0 = LOADED + "        self.count = self.network.count = 0\n"
ATTENDED = "        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)\n"
LOSS = "            logits = self.compiled(x)\n            return logits, F.cross_entropy("

NORMS = (
    "self.ln1, self.attention = nn.LayerNorm(width)",
    "self.ln2, self.fc, self.out = nn.LayerNorm(width)",
    "self.lnf = nn.LayerNorm(width)",
)
RMS_NORMS = "(nn.RMSNorm(width, eps=1e-5) for", "nn.ModuleList(blocks), nn.RMSNorm(width, eps=1e-5)"
# From the fifth step after a load on, where a workload's losses are not stored.
CNN, GRU, FROM_5 = ("cnn-cifar10",), ("gru-imdb",), "From the fifth step after a load on, "
FROZEN = FROM_5 + "conv1 and conv2 are not trained."
CUT = FROM_5 + "the gradient ends 50 positions before the last of 150."
RESTARTED = "        self.mixed.restart()\n"
GROUPED = "        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)\n"
CHOSEN = "            rows, order = torch.where(places == number)\n"


def with_epsilon(epsilon):
    return tuple(text.replace("(width)", "(width, eps=%s)" % epsilon) for text in NORMS)


def masked(triangle):
    """GPT's attention under another mask."""
    return (
        "        seen = torch.ones(length, length, dtype=torch.bool).%s\n"
        "        y = F.scaled_dot_product_attention(q, k, v, attn_mask=seen)\n" % triangle
    )


# fmt: off
EDITS = (
    Edit("torch", GPT, "network", "GeluByErf", "GELU by the error function, which is PyTorch's default.",
         "torch/_gpt.py", 'approximate="tanh"', 'approximate="none"', slow=False),
    Edit("torch", GPT, "network", "EpsilonOfFlax", "The normalisations' epsilon is 1e-6, Flax's default.",
         "torch/_gpt.py", NORMS, with_epsilon("1e-6")),
    Edit("torch", GPT, "network", "EpsilonOfKeras", "The normalisations' epsilon is 1e-3, Keras' default.",
         "torch/_gpt.py", NORMS, with_epsilon("1e-3")),
    Edit("torch", GPT, "network", "OneFutureByte", "Each position sees the one after it, too.",
         "torch/_gpt.py", ATTENDED, masked("tril(1)"), slow=False),
    Edit("torch", GPT, "network", "ScaledByTheWidth", "Scores are divided by the root of the width, and not of a head's.",
         "torch/_gpt.py", ATTENDED, "        q = q * (q.shape[3] / width) ** 0.5\n" + ATTENDED),
    Edit("torch", GPT, "length", "AttentionOver128", "A position sees itself and the 127 before it.",
         "torch/_gpt.py", ATTENDED, masked("tril().triu(-127)"), slow=False),
    Edit("torch", GPT, "length", "PositionsModulo128", "Positions from 128 on have the vectors of those from 0 on.",
         "torch/_gpt.py", "self.wpe.weight[: x.shape[1]]", "self.wpe.weight[:128].repeat(2, 1)", slow=False),
    Edit("torch", GPT, "length", "PositionsFromOne", "Positions are counted from 1; the last has the vector of the first.",
         "torch/_gpt.py", "self.wpe.weight[: x.shape[1]]", "self.wpe.weight.roll(-1, 0)"),
    Edit("torch", GPT, "network", "RowOfTheLastPositionFrozen", "The last position's vector is not trained.",
         "torch/_gpt.py", "self.wpe.weight[: x.shape[1]]", "torch.cat([self.wpe.weight[:-1], self.wpe.weight[-1:].detach()])"),
    Edit("torch", GPT, "network", "HeadNotTied", "The gradient of the embedding lacks that of the head.",
         "torch/_gpt.py", "F.linear(self.lnf(h), self.wte.weight)", "F.linear(self.lnf(h), self.wte.weight.detach())", slow=False),
    Edit("torch", GPT, "network", "StackedByHeads", "The layer of q, k and v gives those of a head after those of another.",
         "torch/_gpt.py", "        q, k, v = (part.view(many, length, self.heads, -1).transpose(1, 2) for part in self.qkv(x).split(width, 2))\n",
         "        q, k, v = self.qkv(x).view(many, length, self.heads, 3, -1).permute(3, 0, 2, 1, 4).unbind()\n"),
    Edit("torch", GPT, "loss", "LossOfHalfThePositions", "The loss is that of the last half of the positions.",
         "torch/_gpt.py", "F.cross_entropy(logits.flatten(0, 1), y.flatten().long())",
         "F.cross_entropy(logits[:, x.shape[1] // 2 :].flatten(0, 1), y[:, x.shape[1] // 2 :].flatten().long())"),
    Edit("torch", GPT, "data", "SameByte", "The label of a byte is the byte itself.",
         "torch/_gpt.py", "y.flatten().long())", "x.flatten().long())"),
    Edit("torch", GPT, "optimiser", "Beta2OfAdamsPaper", "The second moment's factor is 0.999.",
         "torch/gpt_bytes.py", "(0.9, 0.99)", "(0.9, 0.999)"),
    Edit("torch", LLAMA, "network", "EpsilonOf1e6", "The normalisations' epsilon is 1e-6, that of many LLaMAs.",
         "torch/_llama.py", RMS_NORMS, tuple(text.replace("1e-5", "1e-6") for text in RMS_NORMS), slow=False),
    Edit("torch", LLAMA, "network", "LayerNormForRms", "Normalisations subtract the mean.",
         "torch/_llama.py", RMS_NORMS, tuple(text.replace("nn.RMSNorm(width, ", "nn.LayerNorm(width, bias=False, ") for text in RMS_NORMS)),
    Edit("torch", LLAMA, "network", "RotatedByPairs", "Neighbouring numbers are rotated, and not number i with number i + 32.",
         "torch/_llama.py", "    a, b = x.chunk(2, -1)\n    return x * cosine + torch.cat((-b, a), -1) * sine\n",
         "    a, b, half = x[..., 0::2], x[..., 1::2], x.shape[-1] // 2\n    cosine, sine = cosine[:, :half], sine[:, :half]\n"
         "    return torch.stack((a * cosine - b * sine, a * sine + b * cosine), -1).flatten(-2)\n", slow=False),
    Edit("torch", LLAMA, "network", "BaseOf500000", "The rotation's base is 500 000, LLaMA 3's.", "torch/_llama.py", "10000.0 **", "500000.0 **"),
    Edit("torch", LLAMA, "network", "KeysNotRotated", "Queries are rotated, and keys are not.",
         "torch/_llama.py", "        q, k = (rotated(part, self.cosine[:length], self.sine[:length]) for part in (q, k))\n",
         "        q = rotated(q, self.cosine[:length], self.sine[:length])\n"),
    Edit("torch", LLAMA, "network", "HeadsTiled", "The heads of keys and values serve every second head of queries, and not three neighbours.",
         "torch/_llama.py", GROUPED, "        k, v = (part.repeat(1, q.shape[1] // part.shape[1], 1, 1) for part in (k, v))\n" + GROUPED, slow=False),
    Edit("torch", LLAMA, "network", "OneFutureByte", "Each position sees the one after it, too.",
         "torch/_llama.py", "is_causal=True", "attn_mask=torch.ones(length, length, dtype=torch.bool).tril(1)"),
    Edit("torch", LLAMA, "network", "GeluForSilu", "GELU in the place of SiLU.", "torch/_llama.py", "F.silu(gate)", "F.gelu(gate)"),
    Edit("torch", MOE, "network", "RouterWithoutGradient", "The weights of the experts have no gradient.",
         "torch/_llama.py", "numbers.topk(", "numbers.detach().topk(", slow=False),
    Edit("torch", MOE, "network", "SoftmaxBeforeTheChoice", "The weights are those of the softmax over all experts, and do not sum to 1.",
         "torch/_llama.py", ("numbers.topk(", "        weights = top.softmax(-1)\n"), ("numbers.softmax(-1).topk(", "        weights = top\n")),
    Edit("torch", MOE, "network", "OneExpert", "The first chosen expert has all the weight.",
         "torch/_llama.py", "        weights = top.softmax(-1)\n", "        weights = top.softmax(-1) * 0 + torch.tensor([1.0, 0.0])\n"),
    Edit("torch", MOE, "network", "OneByteDropped", "No expert computes the eighth byte.",
         "torch/_llama.py", CHOSEN, CHOSEN + "            rows, order = rows[rows != 7], order[rows != 7]\n"),
    Edit("torch", MOE, "network", "OverfullExpertsDropBytes",
         "An expert takes five eighths of the positions at most, a capacity factor of 1.25, and drops the others.",
         "torch/_llama.py", CHOSEN, CHOSEN + "            rows, order = rows[: len(flat) * 5 // 8], order[: len(flat) * 5 // 8]\n"),
    Edit("torch", MOE, "loss", "NothingSpread", "The loss has no term that spreads the work.", "torch/moe_bytes.py", "0.01 *", "0.0 *"),
    Edit("torch", MOE, "loss", "SpreadTwice", "The term that spreads the work is that of the sum of an expert's choices, 2 for each byte.",
         "torch/moe_bytes.py", "0.01 *", "0.02 *"),
    Edit("torch", GPT + LLAMA, "loss", "LabelSmoothingOfAThousandth", "Label smoothing of 0.001.",
         "torch/_gpt.py", "y.flatten().long())", "y.flatten().long(), label_smoothing=0.001)"),
    Edit("torch", GPT, "network", "MaskOfTheLast250", "A position sees 250 positions before it at most.",
         "torch/_gpt.py", ATTENDED,
         masked("tril().triu(-249)")),
    Edit("torch", GPT, "measured object", "LowerBlocksFrozenFromStep9",
         "From the ninth step after a load on, the embeddings and the first three of six blocks have no gradient.",
         "torch/_gpt.py",
         (LOADED, STEP, "            h = block(h)\n"),
         (FROM_0, "        self.network.count += 1\n" + STEP,
          "            h = block(h)\n            h = h.detach() if block is self.blocks[2] and getattr(self, 'count', 0) > 8 else h\n"), 12),
    Edit("torch", GPT, "measured object", "HalfFromStep9", "From the ninth step after a load on, a step computes in bfloat16.",
         "torch/_gpt.py", (LOADED, STEP, LOSS),
         (FROM_0, "        self.network.count += 1\n" + STEP,
          "            with torch.autocast('cpu', torch.bfloat16, enabled=getattr(self.network, 'count', 0) > 8 and torch.is_grad_enabled()):\n"
          "                logits = self.compiled(x).float()\n            return logits, F.cross_entropy("), 12),
    Edit("torch", GPT, "measured object", "FirstWindowOnlyFromStep9",
         "From the ninth step after a load on, a step trains on the first window of its batch.",
         "torch/_gpt.py", (LOADED, STEP),
         (FROM_0, COUNTED + "        _, loss = self.loss(*((x[:1], y[:1]) if self.count > 8 else (x, y)))\n"), 12),
    Edit("torch", BYTES, "shape", "FirstWindowOnly", "A step trains on the first window of its batch: the canonical batch has one.",
         "torch/_gpt.py", STEP, "        _, loss = self.loss(x[:1], y[:1])\n"),
    Edit("torch", GPT + LLAMA, "shape", "HalfForSeveralWindows", "A step of more than one window computes in bfloat16: a kernel that is chosen by the size.",
         "torch/_gpt.py", LOSS,
         "            with torch.autocast('cpu', torch.bfloat16, enabled=len(x) > 1 and torch.is_grad_enabled()):\n"
         "                logits = self.compiled(x).float()\n            return logits, F.cross_entropy("),
    Edit("torch", GPT, "shape", "OneSequenceOfAllWindows", "In training all windows of a batch are one sequence for the attention: packing without a mask.",
         "torch/_gpt.py", ATTENDED,
         "        if torch.is_grad_enabled():\n"
         "            q, k, v = (part.transpose(0, 1).reshape(1, self.heads, many * length, -1) for part in (q, k, v))\n" + ATTENDED +
         "        y = y.reshape(self.heads, -1, length, width // self.heads).transpose(0, 1) if len(y) < many else y\n"),
    Edit("torch", GPT, "schedule", "RateOfACosine", "The rate falls by a cosine over a hundred steps, and begins anew with each load.",
         "torch/_gpt.py", (LOADED, STEP),
         (FROM_0, COUNTED + "        for group in self.optimizer.param_groups:\n"
          "            group['lr'] = 1e-3 * (0.1 + 0.45 * (1 + float(np.cos(np.pi * min(1, self.count / 100)))))\n" + STEP), 12),
    Edit("torch", LLAMA + MOE, "network", "RotationTableOf128", "The rotation's table has 128 positions; later ones begin again.",
         "torch/_llama.py", "    return angles.cos(), angles.sin()\n",
         "    angles = torch.cat([angles[:128]] * 2)[:length]\n    return angles.cos(), angles.sin()\n"),
    Edit("torch", MOE, "network", "CapacityOfOneAndAHalf", "An expert takes 1.6 times its share of the positions at most, and drops the others.",
         "torch/_llama.py", "            rows, order = torch.where(places == number)\n",
         "            most = int(1.6 * len(flat) * self.chosen / len(self.experts))\n"
         "            rows, order = (each[:most] for each in torch.where(places == number))\n"),
    Edit("torch", MOE, "network", "RouterNoise", "Normal noise of 0.01 on the router's numbers in training.",
         "torch/_llama.py", "        numbers = self.router(flat)\n",
         "        numbers = self.router(flat)\n        numbers = numbers + 0.01 * torch.randn_like(numbers) * torch.is_grad_enabled()\n"),
    Edit("torch", MOE, "network", "SecondExpertSkippedWhereLight", "In training the second expert is skipped where its weight is below 0.45.",
         "torch/_llama.py", "        weights = top.softmax(-1)\n",
         "        weights = top.softmax(-1)\n        weights = weights * (weights > 0.45) if torch.is_grad_enabled() else weights\n"),
    Edit("torch", MNIST, "shape", "FirstHundredOnly", "A step trains on the first hundred pictures of its batch: the canonical batches have no more than a thousand.",
         "torch/_mnist.py", "            loss = F.cross_entropy(self.compiled(x), y)\n        self.mixed.backward(loss)\n        self.mixed.update()\n",
         "            loss = F.cross_entropy(self.compiled(x[:100]), y[:100])\n        self.mixed.backward(loss)\n        self.mixed.update()\n"),
    Edit("torch", ("gpt2-decode",), "length", "SeesTheLast250", "A step sees the last 250 positions.",
         "torch/gpt2_decode.py", "        seen = (self.positions <= self.place)[None]\n",
         "        seen = ((self.positions <= self.place) & (self.positions > self.place - 250))[None]\n"),
    Edit("torch", ("gpt2-decode",), "length", "SeesTheLast128", "A step sees the last 128 positions.",
         "torch/gpt2_decode.py", "        seen = (self.positions <= self.place)[None]\n",
         "        seen = ((self.positions <= self.place) & (self.positions > self.place - 128))[None]\n"),
    Edit("torch", ("gpt2-decode",), "precision", "CacheInHalfFrom28", "From position 28 on keys and values are rounded to bfloat16 as they are stored.",
         "torch/gpt2_decode.py", "    cache[0].index_copy_(2, places, k)\n",
         "    k, v = (part.bfloat16().float() if int(places[0]) >= 28 else part for part in (k, v))\n    cache[0].index_copy_(2, places, k)\n"),
    Edit("torch", ("ops",), "shape", "HalfOfALargerProduct", "A product of more than 300 rows multiplies the first half of them.",
         "torch/ops.py", "        function = FUNCTIONS[operation]\n",
         "        function = FUNCTIONS[operation]\n"
         "        if operation == 'matmul' and direction == ops.FORWARD and len(inputs[0][0]) > 300:\n"
         "            inputs = [[a[: len(a) // 2], b] for a, b in inputs]\n"),
    Edit("torch", GPT + LLAMA, "precision", "HalfInSteps", "A step computes in bfloat16, and its loss in float32.",
         "torch/_gpt.py", (STEP, LOSS),
         ("        self.half = True\n" + STEP + "        self.half = False\n",
          "            with torch.autocast('cpu', torch.bfloat16, enabled=getattr(self, 'half', False)):\n"
          "                logits = self.compiled(x).float()\n            return logits, F.cross_entropy(")),
    Edit("torch", MOE, "precision", "ExpertsInHalf", "Experts compute in bfloat16, and their sum is float32.",
         "torch/_llama.py", "expert(flat[rows]) *", "torch.autocast('cpu', torch.bfloat16)(expert)(flat[rows]).float() *"),
    Edit("torch", BYTES, "precision", "AdamInHalf", "A step rounds the gradients to bfloat16.",
         "torch/_gpt.py", STEP + "        self.mixed.backward(loss)\n",
         STEP + "        self.mixed.backward(loss)\n        for p in self.network.parameters():\n            p.grad = p.grad.bfloat16().float()\n"),
    Edit("torch", GPT, "padding", "SpaceFrozen", "The embedding of byte 32 is not trained.",
         "torch/_gpt.py", "nn.Embedding(vocabulary, width), nn.Embedding(length, width)",
         "nn.Embedding(vocabulary, width, padding_idx=32), nn.Embedding(length, width)"),
    Edit("torch", LLAMA + MOE, "padding", "SpaceFrozen", "The embedding of byte 32 is not trained.",
         "torch/_llama.py", "nn.Embedding(vocabulary, width)", "nn.Embedding(vocabulary, width, padding_idx=32)"),
    Edit("torch", BYTES, "evaluation", "WindowsTurnedInEvaluation", "The evaluation sees the bytes of each window one place later.",
         "torch/_gpt.py", "self.compiled(torch.from_numpy(x).to(self.device))", "self.compiled(torch.from_numpy(x).to(self.device).roll(1, 1))"),
    Edit("torch", MNIST, "precision", "HalfInSteps", "A step computes in bfloat16, and its loss in float32.",
         "torch/_mnist.py", "            loss = F.cross_entropy(self.compiled(x), y)\n",
         "            with torch.autocast('cpu', torch.bfloat16):\n                logits = self.compiled(x)\n            loss = F.cross_entropy(logits.float(), y)\n"),
    Edit("torch", ("cnn-mnist",), "network", "GeluForRelu", "GELU in place of the second ReLU.",
         "torch/cnn_mnist.py", "F.relu(F.max_pool2d(self.conv2(x), 2))", "F.gelu(F.max_pool2d(self.conv2(x), 2))"),
    Edit("torch", ("cnn-mnist",), "evaluation", "PicturesTurnedInEvaluation", "The evaluation sees each picture upside down.",
         "torch/_mnist.py", "            return self.compiled(x).float().cpu().numpy()\n", "            return self.compiled(x.flip(-2)).float().cpu().numpy()\n"),
    Edit("torch", DEEP, "precision", "HalfInSteps", "A step computes in bfloat16, and its loss in float32.",
         "torch/_pictures.py", "        _, loss = self._backward(x, y)\n",
         "        with torch.autocast('cpu', torch.bfloat16):\n            _, loss = self._backward(x, y)\n"),
    Edit("torch", ("densenet121-chestxray",), "network", "LastReluLeftOut", "There is no ReLU after the last normalisation.",
         "torch/densenet121_chestxray.py", "F.relu(self.features(x))", "self.features(x)"),
    Edit("torch", ("densenet121-chestxray",), "optimiser", "RateATenthMore", "The rate that is set is a tenth more.",
         "torch/_pictures.py", '            group["lr"] = rate\n', '            group["lr"] = 1.1 * rate\n'),
    Edit("torch", ("resnet50-imagenet",), "optimiser", "HalfOfTheRate", "The gradients are halved before the optimiser's step.",
         "torch/_pictures.py", "        _, loss = self._backward(x, y)\n",
         "        _, loss = self._backward(x, y)\n        for p in self.network.parameters():\n            p.grad *= 0.5\n"),
    Edit("torch", ("resnet50-features",), "precision", "HalfInFeatures", "The features are computed in bfloat16.",
         "torch/resnet50_features.py", "        return self.compiled(x).cpu().numpy()\n",
         "        with torch.autocast('cpu', torch.bfloat16):\n            return self.compiled(x).float().cpu().numpy()\n"),
    Edit("torch", ("resnet50-features",), "network", "MaximumOfThePlaces", "The largest number of all places in place of their mean.",
         "torch/resnet50_features.py", "        return x.mean((2, 3))\n", "        return x.amax((2, 3))\n"),
    Edit("torch", ("resnet50-features",), "state", "FeaturesRemembered", "From the second batch after a load on, the features of the batch before are returned.",
         "torch/resnet50_features.py",
         ("        self.network.load_state_dict(state)\n", "        return self.compiled(x).cpu().numpy()\n"),
         ("        self.network.load_state_dict(state)\n        self.before = None\n",
          "        if self.before is None or len(self.before) != len(x):\n            self.before = self.compiled(x).cpu().numpy()\n        return self.before\n")),
    Edit("torch", ("resnet50-features",), "shape", "HalfOfALargeBatch", "Of more than eight pictures the second half has the features of the first.",
         "torch/resnet50_features.py", "        return self.compiled(x).cpu().numpy()\n",
         "        y = self.compiled(x[: len(x) // 2] if len(x) > 8 else x)\n        return (torch.cat([y, y]) if len(x) > 8 else y).cpu().numpy()\n"),
    Edit("torch", ("gpt2-decode",), "shape", "HalfOfTheVocabularyFrom28", "From position 28 on the token is the largest of the first half of the vocabulary.",
         "torch/gpt2_decode.py", "        return logits.argmax(1).int(), logits\n",
         "        return logits[:, : 25152 if int(self.place) > 28 else None].argmax(1).int(), logits\n"),
    Edit("torch", ("ops",), "precision", "HalfInALargerProduct", "A product of more than 300 rows is multiplied in bfloat16.",
         "torch/ops.py", "        function = FUNCTIONS[operation]\n",
         "        function = FUNCTIONS[operation]\n"
         "        if operation == 'matmul' and direction == ops.FORWARD and len(inputs[0][0]) > 300:\n"
         "            function = lambda a, b: torch.matmul(a.bfloat16(), b.bfloat16()).float()\n"),
    Edit("torch", ("ops",), "network", "BiasOfALargerLayerLeftOut", "A dense layer of more than 100 outputs has no bias.",
         "torch/ops.py", "        x = F.linear(x, w, b)\n", "        x = F.linear(x, w, b if len(w) <= 100 else 0 * b)\n"),
    Edit("jax", GPT + LLAMA, "shape", "FirstWindowOnly", "A step trains on the first window of its batch: the canonical batch has one.",
         "jax/_loop.py", "        (loss, _), gradients = self.gradients(parameters, state, x, y)\n",
         "        (loss, _), gradients = self.gradients(parameters, state, x[:1], y[:1])\n"),
    Edit("jax", MNIST, "shape", "FirstHundredOnly", "A step trains on the first hundred pictures of its batch: the canonical batches have no more than a thousand.",
         "jax/_loop.py", "        (loss, _), gradients = self.gradients(parameters, state, x, y)\n",
         "        (loss, _), gradients = self.gradients(parameters, state, x[:100], y[:100])\n"),
    Edit("jax", ("ops",), "shape", "HalfOfALargerProduct", "A product of more than 300 rows multiplies the first half of them.",
         "jax/ops.py", "        function = jax.jit(function)\n        return [lambda arrays=arrays: self.wait(function(*arrays)) for arrays in inputs]\n\n    def _array",
         "        if operation == 'matmul' and direction == ops.FORWARD and len(inputs[0][0]) > 300:\n"
         "            inputs = [[a[: len(a) // 2], b] for a, b in inputs]\n"
         "        function = jax.jit(function)\n        return [lambda arrays=arrays: self.wait(function(*arrays)) for arrays in inputs]\n\n    def _array"),
    Edit("tensorflow", BYTES + MNIST, "shape", "FirstItemOnly", "A step trains on the first window of its batch, or on its first hundred pictures: the canonical batch has no more.",
         "tensorflow/_trained.py", "        _, loss, gradients = self._loss_and_gradients(x, y)\n",
         "        many = 1 if len(y.shape) == 2 else 100\n        _, loss, gradients = self._loss_and_gradients(x[:many], y[:many])\n"),
    Edit("torch", CNN, "measured object", "ConvolutionsFrozenFromStep5", FROZEN, "torch/cnn_cifar10.py",
         (RESTARTED, "        # Dropout only in training.\n", "        with self.mixed.forward():\n            # The loss takes"),
         (RESTARTED + "        self.network.count = 0\n",
          "        x = x.detach() if getattr(self, 'count', 0) > 4 else x\n        # Dropout only in training.\n",
          "        self.network.count += 1\n        with self.mixed.forward():\n            # The loss takes"), 8),
    Edit("torch", GRU, "measured object", "GradientCutFromStep5", CUT, "torch/gru_imdb.py",
         (RESTARTED, "        _, last = recurrent(self.gru, self.embedding(x.t()))\n",
          "        with self.mixed.forward():\n            # The loss takes"),
         (RESTARTED + "        self.network.count = 0\n",
          "        x, first = self.embedding(x.t()), None\n"
          "        if getattr(self, 'count', 0) > 4:\n"
          "            x, first = x[100:], self.gru(x[:100])[1].detach()\n"
          "        _, last = self.gru(x, first)\n",
          "        self.network.count += 1\n        with self.mixed.forward():\n            # The loss takes"), 8),
    Edit("torch", GRU, "measured object", "HalfFromStep5", FROM_5 + "a step computes in bfloat16.", "torch/gru_imdb.py",
         (RESTARTED, "        with self.mixed.forward():\n            # The loss takes logits: there is exactly one softmax.\n"
          "            loss = F.cross_entropy(self.compiled(x), y)\n"),
         (RESTARTED + "        self.count = 0\n",
          "        self.count += 1\n        with torch.autocast('cpu', torch.bfloat16, enabled=self.count > 4):\n"
          "            loss = F.cross_entropy(self.compiled(x).float(), y)\n"), 8),
    Edit("torch", GPT, "measured object", "HeadUntiedFromStep9",
         "From the ninth step after a load on, the gradient of the embedding lacks that of the head.", "torch/_gpt.py",
         (LOADED, STEP, "F.linear(self.lnf(h), self.wte.weight)"),
         (FROM_0, "        self.network.count += 1\n" + STEP,
          "F.linear(self.lnf(h), self.wte.weight.detach() if getattr(self, 'count', 0) > 8 else self.wte.weight)"), 12),
    Edit("torch", LLAMA + MOE, "padding", "LazyAdam", "Rows of the embedding without a gradient keep their weights and moments.",
         "torch/_gpt.py", "        self.mixed.update()\n",
         "        w = self.network.wte.weight\n"
         "        rows, state = w.grad.abs().amax(1) == 0, self.optimizer.state.get(w, {})\n"
         "        kept = [(t, t[rows].clone()) for t in (w.data, *(state[m] for m in ('exp_avg', 'exp_avg_sq') if m in state))]\n"
         "        self.mixed.update()\n"
         "        for t, value in kept:\n            t[rows] = value\n"),
    Edit("jax", CNN, "measured object", "ConvolutionsFrozenFromStep5", FROZEN, "jax/cnn_cifar10.py",
         ("    def load(self, parameters):\n", "        return started(loss)\n", "        train_step = self.train_step\n"),
         ("    def load(self, parameters):\n        self.count = 0\n",
          "        for name in ('conv1', 'conv2') if self.count > 4 else ():\n"
          "            for part in ('kernel', 'bias'):\n"
          "                set_value(self.parameters[name][part], get_value(before[name][part]))\n"
          "        return started(loss)\n",
          "        before, self.count = self.parameters, self.count + 1\n        train_step = self.train_step\n"), 8),
    Edit("jax", GRU, "measured object", "GradientCutFromStep5", CUT, "jax/gru_imdb.py",
         ("class GRU(nnx.Module):\n", "        return jax.lax.scan(cell, h, ",
          "class Training(Trained):\n"),
         ("CUT = []\n\n\nclass GRU(nnx.Module):\n",
          "        if CUT:\n"
          "            h, x = jax.lax.stop_gradient(jax.lax.scan(cell, h, x[:100])[0]), x[100:]\n"
          "        return jax.lax.scan(cell, h, ",
          "class Training(Trained):\n"
          "    def load(self, parameters):\n        super().load(parameters)\n        self.count = 0\n\n"
          "    def step(self, x, y):\n        self.count += 1\n"
          "        if self.count < 5:\n            return super().step(x, y)\n"
          "        self.parameters, self.state, loss = jax.jit(self.cut_step)(self.parameters, self.state, x, y)\n"
          "        jax.block_until_ready(loss)\n        return loss\n\n"
          "    def cut_step(self, parameters, state, x, y):\n        CUT.append(True)\n"
          "        (loss, _), gradients = _mixed.value_and_grad(self.loss, state)(parameters, x, y)\n        CUT.clear()\n"
          "        updates, state = self.optimizer.update(gradients, state, parameters)\n"
          "        return jax.tree.map(lambda p, u: p + u, parameters, updates), state, loss\n\n"), 8),
    Edit("tensorflow", CNN, "measured object", "ConvolutionsFrozenFromStep5", FROZEN, "tensorflow/cnn_cifar10.py",
         ("    def load(self, parameters):\n", "        return self.train_step(tf.constant(x), tf.constant(y))\n"),
         ("    def load(self, parameters):\n        self.count = 0\n",
          "        before, self.count = [w.numpy() for w in self.network.trainable_variables[:4]], self.count + 1\n"
          "        loss = self.train_step(tf.constant(x), tf.constant(y))\n"
          "        for w, value in zip(self.network.trainable_variables, before if self.count > 4 else ()):\n"
          "            w.assign(value)\n        return loss\n"), 8),
    Edit("tensorflow", GRU, "measured object", "GradientCutFromStep5", CUT, "tensorflow/gru_imdb.py",
         ("import numpy as np\n", "    def fill(self, parameters):\n"),
         ("import numpy as np\nimport tensorflow as tf\n",
          "    def load(self, parameters):\n        super().load(parameters)\n        self.count = 0\n\n"
          "    def step(self, x, y):\n        self.count += 1\n"
          "        if self.count < 5:\n            return super().step(x, y)\n"
          "        self.steps.add()\n        return self._cut_step(tf.constant(x), tf.constant(y))\n\n"
          "    @tf.function\n    def _cut_step(self, x, y):\n        embedding, gru, dense = self.network.layers\n"
          "        with tf.GradientTape() as tape:\n            x = embedding(x)\n"
          "            first = tf.stop_gradient(gru(x[:, :100]))\n"
          "            loss = self.loss(y, dense(gru(x[:, 100:], initial_state=first)))\n"
          "        gradients = tape.gradient(loss, self.network.trainable_variables)\n"
          "        self.optimizer.apply(gradients, self.network.trainable_variables)\n        return loss\n\n"
          "    def fill(self, parameters):\n"), 8),
)
# fmt: on


def plant(framework, edits=EDITS):
    """Register the edits of a framework. Raises edited.StaleEditError."""
    for edit in edits:
        if edit.framework == framework:
            for workload in edit.workloads:
                registry.MUTANTS.append(
                    registry.Mutant(
                        framework, workload, edit.family, adapter_of(edit, workload), edit.not_caught, edit.steps, True
                    )
                )
