# SPDX-License-Identifier: Apache-2.0
"""Offline evaluation of the passage retriever: passages are embedded once, sorted by length in
small right-padded chunks, and scored against the queries chunk by chunk."""
import math
import sys
import torch

H = 4


class Linear:
    def __init__(self, w, b):
        self.w, self.b = w.T.contiguous(), b

    def __call__(self, x):
        return torch.matmul(x, self.w) + self.b


class Norm:
    def __init__(self, w, b):
        self.w, self.b = w, b

    def __call__(self, x):
        x = x - x.mean(-1, True)
        return x * torch.rsqrt(x.square().mean(-1, True) + 1e-5) * self.w + self.b


def gelu(x):
    return 0.5 * x * (1.0 + torch.erf(x / math.sqrt(2.0)))  # <- activation


class Layer:
    def __init__(self, sd, prefix):
        wb = lambda key: (sd[prefix + key + ".weight"], sd[prefix + key + ".bias"])
        ws, bs = sd[prefix + "self_attn.in_proj_weight"], sd[prefix + "self_attn.in_proj_bias"]
        self.q, self.k, self.v = (Linear(w, b) for w, b in zip(ws.chunk(3), bs.chunk(3)))
        self.o = Linear(*wb("self_attn.out_proj"))
        self.fc1, self.fc2 = Linear(*wb("linear1")), Linear(*wb("linear2"))
        self.n1, self.n2 = Norm(*wb("norm1")), Norm(*wb("norm2"))

    def heads(self, x):
        return x.unflatten(-1, (H, -1)).movedim(-2, 1)

    def __call__(self, x, bias):
        q, k, v = self.heads(self.q(x)), self.heads(self.k(x)), self.heads(self.v(x))
        energy = q @ k.mT / math.sqrt(q.shape[-1]) + bias  # <- keymask
        mixed = (energy.softmax(-1) @ v).movedim(1, -2).flatten(-2)  # <- keymask
        x = self.n1(x + self.o(mixed))
        return self.n2(x + self.fc2(gelu(self.fc1(x))))  # <- activation


class Embedder:
    def __init__(self, sd):
        self.word, self.place = sd["word.weight"], sd["position.weight"]
        self.norm = Norm(sd["embed_norm.weight"], sd["embed_norm.bias"])
        self.layers = [Layer(sd, f"encoder.layers.{i}.") for i in range(2)]

    def encode(self, texts):
        lengths = torch.tensor([len(t) for t in texts])
        width = int(lengths.max())
        ids = torch.tensor([t + [0] * (width - len(t)) for t in texts])
        real = torch.arange(width) < lengths[:, None]
        x = self.word[ids] + self.place[:width]  # <- places
        x = self.norm(x)
        bias = torch.zeros(len(texts), 1, 1, width)
        bias = bias.masked_fill(~real[:, None, None], float("-inf"))  # <- keymask
        for layer in self.layers:
            x = layer(x, bias)
        total = torch.einsum("btd,bt->bd", x, real.float())  # <- pooling
        mean = total / lengths[:, None]  # <- pooling
        return mean / mean.norm(dim=1, keepdim=True)  # <- cosine

    def encode_sorted(self, texts, size=4):
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        parts = [self.encode([texts[i] for i in order[j:j + size]])
                 for j in range(0, len(order), size)]
        back = torch.empty(len(order), dtype=torch.long)
        back[torch.tensor(order)] = torch.arange(len(order))
        return torch.cat(parts)[back]


def evaluate(q, p, temperature=0.2):
    target = (q * p).sum(1) / temperature
    running = torch.full_like(target, -math.inf)
    above = torch.zeros_like(target)
    for i, chunk in enumerate(p.split(2)):
        s = torch.mm(q, chunk.t()) / temperature
        running = torch.logaddexp(running, s.logsumexp(1))
        other = torch.arange(2 * i, 2 * i + len(chunk)) != torch.arange(len(q))[:, None]
        above += ((s > target[:, None]) & other).sum(1)
    return (running - target).mean() + 1.0 - (above + 1.0).reciprocal().mean()


model = Embedder(torch.load(sys.argv[1], weights_only=True))
rng = torch.Generator().manual_seed(33)
pick = lambda lo, hi: int(torch.randint(lo, hi, (1,), generator=rng))
losses = []
with torch.inference_mode():
    for _ in range(4):
        questions, documents = [], []
        for _ in range(6):
            size = pick(8, 17)
            doc = torch.randint(2, 90, (size,), generator=rng).tolist()
            at = pick(0, size - 4)
            documents.append(doc)
            questions.append([1, *doc[at:at + 2 + at % 3]])
        value = evaluate(model.encode_sorted(questions), model.encode_sorted(documents))
        losses.append(value.item())
print(losses)
