"""PyTorch's published way: mnist/main.py of pytorch/examples, and the layers of other examples and tutorials.

The GRU is of word_language_model/model.py, the perceptron of the tutorial "Quickstart", ResNet-50 of imagenet/main.py, which takes it from
torchvision. The GPT on bytes is nanoGPT's model.py and train.py, the LLaMA llama2.c's model.py.

As there: a Module with log_softmax, nll_loss, and in each step the mini-batch to the device, zero_grad, backward, step; the perceptron and
ResNet-50 with cross_entropy. Images and convolutions are channels_last, as the tutorial "Channels Last Memory Format in PyTorch" has them.
Other than there: this benchmark's layers and optimisers, and mini-batches from NumPy. The language models have no clipping of gradients and
no schedule of the rate, as this benchmark has none. llama2.c ties the head to the embedding, and rotates neighbouring numbers.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


def loop(model, optimizer, x, y, criterion=F.nll_loss):
    device = torch.device("cpu")
    y = y.astype("int64")
    if x.ndim == 4:
        model = model.to(device, memory_format=torch.channels_last)
        x = torch.from_numpy(x).to(memory_format=torch.channels_last).numpy()

    def step():
        model.train()
        data, target = torch.from_numpy(x).to(device), torch.from_numpy(y).to(device)
        optimizer.zero_grad()
        output = model(data)
        loss = criterion(output, target)
        loss.backward()
        optimizer.step()
        return loss

    return step


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 50, 3, 1, 1), nn.Conv2d(50, 50, 3, 1, 1)
        self.conv3, self.conv4 = nn.Conv2d(50, 100, 3, 1, 1), nn.Conv2d(100, 100, 3, 1, 1)
        self.dropout1, self.dropout2, self.dropout3 = nn.Dropout(0.25), nn.Dropout(0.25), nn.Dropout(0.5)
        self.fc1, self.fc2 = nn.Linear(6400, 512), nn.Linear(512, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = self.dropout1(F.max_pool2d(F.relu(self.conv2(x)), 2))
        x = F.relu(self.conv3(x))
        x = self.dropout2(F.max_pool2d(F.relu(self.conv4(x)), 2))
        x = self.dropout3(F.relu(self.fc1(torch.flatten(x, 1))))
        return F.log_softmax(self.fc2(x), dim=1)


class RNNModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Embedding(30000, 125)
        self.rnn = nn.GRU(125, 100, batch_first=True)
        self.decoder = nn.Linear(100, 2)

    def forward(self, x):
        output, _ = self.rnn(self.encoder(x))
        return F.log_softmax(self.decoder(output[:, -1]), dim=1)


class MNIST(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 16, 2), nn.Conv2d(16, 8, 2)
        self.fc = nn.Linear(288, 10)

    def forward(self, x):
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        x = F.relu(F.max_pool2d(self.conv2(x), 2))
        return F.log_softmax(self.fc(torch.flatten(x, 1)), dim=1)


class Bottleneck(nn.Module):
    def __init__(self, inplanes, planes, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inplanes, planes, 1, bias=False), nn.BatchNorm2d(planes)
        self.conv2, self.bn2 = nn.Conv2d(planes, planes, 3, stride, 1, bias=False), nn.BatchNorm2d(planes)
        self.conv3, self.bn3 = nn.Conv2d(planes, planes * 4, 1, bias=False), nn.BatchNorm2d(planes * 4)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or inplanes != planes * 4:
            shortcut = nn.Conv2d(inplanes, planes * 4, 1, stride, bias=False)
            self.downsample = nn.Sequential(shortcut, nn.BatchNorm2d(planes * 4))

    def forward(self, x):
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        identity = x if self.downsample is None else self.downsample(x)
        return self.relu(out + identity)


def resnet50():
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    inplanes = 64
    for planes, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for block in range(blocks):
            layers.append(Bottleneck(inplanes, planes, stride if block == 0 else 1))
            inplanes = planes * 4
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d((1, 1)), nn.Flatten(), nn.Linear(2048, 1000))


def cnn_cifar10(setup, x, y):
    model = Net()
    return loop(model, torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9), x, y)


def gru_imdb(setup, x, y):
    model = RNNModel()
    return loop(model, torch.optim.Adam(model.parameters(), lr=0.001), x.astype("int64"), y)


def cnn_mnist(setup, x, y):
    model = MNIST()
    return loop(model, torch.optim.Adam(model.parameters(), lr=0.001), x, y)


def mlp_mnist(setup, x, y):
    model = nn.Sequential(nn.Linear(784, 32), nn.ReLU(), nn.Linear(32, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    return loop(model, optimizer, x.reshape(len(x), 784), y, F.cross_entropy)


def resnet50_imagenet(setup, x, y):
    model = resnet50()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0125, momentum=0.9, weight_decay=1e-4)
    return loop(model, optimizer, x, y, F.cross_entropy)


class CausalSelfAttention(nn.Module):
    def __init__(self, n_embd, n_head):
        super().__init__()
        self.c_attn, self.c_proj = nn.Linear(n_embd, 3 * n_embd), nn.Linear(n_embd, n_embd)
        self.n_head, self.n_embd = n_head, n_embd

    def forward(self, x):
        b, t, c = x.size()
        q, k, v = self.c_attn(x).split(self.n_embd, dim=2)
        k = k.view(b, t, self.n_head, c // self.n_head).transpose(1, 2)
        q = q.view(b, t, self.n_head, c // self.n_head).transpose(1, 2)
        v = v.view(b, t, self.n_head, c // self.n_head).transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=None, dropout_p=0, is_causal=True)
        return self.c_proj(y.transpose(1, 2).contiguous().view(b, t, c))


class MLP(nn.Module):
    def __init__(self, n_embd):
        super().__init__()
        self.c_fc, self.c_proj = nn.Linear(n_embd, 4 * n_embd), nn.Linear(4 * n_embd, n_embd)
        self.gelu = nn.GELU(approximate="tanh")

    def forward(self, x):
        return self.c_proj(self.gelu(self.c_fc(x)))


class Block(nn.Module):
    def __init__(self, n_embd, n_head):
        super().__init__()
        self.ln_1, self.attn = nn.LayerNorm(n_embd), CausalSelfAttention(n_embd, n_head)
        self.ln_2, self.mlp = nn.LayerNorm(n_embd), MLP(n_embd)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, vocab_size, block_size, n_layer, n_head, n_embd):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab_size, n_embd), nn.Embedding(block_size, n_embd)
        self.h = nn.ModuleList([Block(n_embd, n_head) for _ in range(n_layer)])
        self.ln_f = nn.LayerNorm(n_embd)
        self.lm_head = nn.Linear(n_embd, vocab_size, bias=False)
        self.wte.weight = self.lm_head.weight

    def forward(self, idx):
        pos = torch.arange(0, idx.size(1), dtype=torch.long, device=idx.device)
        x = self.wte(idx) + self.wpe(pos)
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))


def of_positions(logits, targets):
    return F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)


def adam(model):
    return torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.99), weight_decay=0.0)


def gpt_bytes(setup, x, y):
    model = GPT(vocab_size=256, block_size=256, n_layer=6, n_head=6, n_embd=384)
    return loop(model, adam(model), x.astype("int64"), y, of_positions)


class RMSNorm(torch.nn.Module):
    def __init__(self, dim, eps=1e-5):
        super().__init__()
        self.eps, self.weight = eps, nn.Parameter(torch.ones(dim))

    def forward(self, x):
        output = x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + self.eps)
        return output.type_as(x) * self.weight


def precompute_freqs_cis(dim, end, theta=10000.0):
    freqs = torch.outer(
        torch.arange(end), 1.0 / (theta ** (torch.arange(0, dim, 2)[: (dim // 2)].float() / dim))
    ).float()
    return torch.cos(freqs)[None, :, None], torch.sin(freqs)[None, :, None]


def apply_rotary_emb(xq, xk, freqs_cos, freqs_sin):
    xq_r, xq_i = xq.float().reshape((*xq.shape[:-1], -1, 2)).unbind(-1)
    xk_r, xk_i = xk.float().reshape((*xk.shape[:-1], -1, 2)).unbind(-1)
    xq_out = torch.stack([xq_r * freqs_cos - xq_i * freqs_sin, xq_r * freqs_sin + xq_i * freqs_cos], dim=-1).flatten(3)
    xk_out = torch.stack([xk_r * freqs_cos - xk_i * freqs_sin, xk_r * freqs_sin + xk_i * freqs_cos], dim=-1).flatten(3)
    return xq_out.type_as(xq), xk_out.type_as(xk)


def repeat_kv(x, n_rep):
    bs, slen, n_kv_heads, head_dim = x.shape
    return (
        x[:, :, :, None, :]
        .expand(bs, slen, n_kv_heads, n_rep, head_dim)
        .reshape(bs, slen, n_kv_heads * n_rep, head_dim)
    )


class Attention(nn.Module):
    def __init__(self, dim, n_heads, n_kv_heads):
        super().__init__()
        self.n_heads, self.n_kv_heads, self.head_dim = n_heads, n_kv_heads, dim // n_heads
        self.wq = nn.Linear(dim, n_heads * self.head_dim, bias=False)
        self.wk = nn.Linear(dim, n_kv_heads * self.head_dim, bias=False)
        self.wv = nn.Linear(dim, n_kv_heads * self.head_dim, bias=False)
        self.wo = nn.Linear(dim, dim, bias=False)

    def forward(self, x, freqs_cos, freqs_sin):
        bsz, seqlen, _ = x.shape
        xq = self.wq(x).view(bsz, seqlen, self.n_heads, self.head_dim)
        xk = self.wk(x).view(bsz, seqlen, self.n_kv_heads, self.head_dim)
        xv = self.wv(x).view(bsz, seqlen, self.n_kv_heads, self.head_dim)
        xq, xk = apply_rotary_emb(xq, xk, freqs_cos, freqs_sin)
        xk, xv = (repeat_kv(each, self.n_heads // self.n_kv_heads) for each in (xk, xv))
        xq, xk, xv = xq.transpose(1, 2), xk.transpose(1, 2), xv.transpose(1, 2)
        output = F.scaled_dot_product_attention(xq, xk, xv, attn_mask=None, dropout_p=0.0, is_causal=True)
        return self.wo(output.transpose(1, 2).contiguous().view(bsz, seqlen, -1))


class TransformerBlock(nn.Module):
    def __init__(self, dim, n_heads, n_kv_heads, hidden_dim):
        super().__init__()
        self.attention, self.attention_norm = Attention(dim, n_heads, n_kv_heads), RMSNorm(dim)
        self.w1, self.w2 = nn.Linear(dim, hidden_dim, bias=False), nn.Linear(hidden_dim, dim, bias=False)
        self.w3, self.ffn_norm = nn.Linear(dim, hidden_dim, bias=False), RMSNorm(dim)

    def forward(self, x, freqs_cos, freqs_sin):
        h = x + self.attention(self.attention_norm(x), freqs_cos, freqs_sin)
        x = self.ffn_norm(h)
        return h + self.w2(F.silu(self.w1(x)) * self.w3(x))


class Transformer(nn.Module):
    def __init__(self, vocab_size, max_seq_len, dim, n_layers, n_heads, n_kv_heads, hidden_dim):
        super().__init__()
        self.tok_embeddings, self.norm = nn.Embedding(vocab_size, dim), RMSNorm(dim)
        self.layers = nn.ModuleList([TransformerBlock(dim, n_heads, n_kv_heads, hidden_dim) for _ in range(n_layers)])
        self.output = nn.Linear(dim, vocab_size, bias=False)
        self.freqs_cos, self.freqs_sin = precompute_freqs_cis(dim // n_heads, max_seq_len)

    def forward(self, tokens):
        seqlen, h = tokens.shape[1], self.tok_embeddings(tokens)
        freqs_cos, freqs_sin = self.freqs_cos[:, :seqlen], self.freqs_sin[:, :seqlen]
        for layer in self.layers:
            h = layer(h, freqs_cos, freqs_sin)
        return self.output(self.norm(h))


def llama_bytes(setup, x, y):
    model = Transformer(256, 256, dim=384, n_layers=6, n_heads=6, n_kv_heads=2, hidden_dim=1024)
    return loop(model, adam(model), x.astype("int64"), y, of_positions)
