# SPDX-License-Identifier: Apache-2.0
"""Greedy generation with a CodeGen of one's own: every prompt by itself, the whole text read anew
for each token, rotations as complex numbers; how sure the model was, batch by batch.
"""

import math
import sys

import torch
from torch import nn

VOCAB, DIM, HEADS, HEAD, ROTARY, LAYERS, NEW = 50, 48, 8, 6, 4, 2, 3


def gelu(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))  # <- gelu


def rotate(x, positions):
    """x: head, place, channel; the first channels in pairs."""
    speed = 10000.0 ** (-torch.arange(0, ROTARY, 2) / ROTARY)
    angle = positions[:, None] * speed  # <- places
    turn = torch.polar(torch.ones_like(angle), angle)
    pairs = torch.view_as_complex(x[..., :ROTARY].unflatten(-1, (-1, 2)).contiguous())
    turned = torch.view_as_real(pairs * turn).flatten(-2)  # <- places
    return torch.cat((turned, x[..., ROTARY:]), -1)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.wq = nn.Linear(DIM, DIM, bias=False)
        self.wk = nn.Linear(DIM, DIM, bias=False)
        self.wv = nn.Linear(DIM, DIM, bias=False)
        self.wo = nn.Linear(DIM, DIM, bias=False)

    def forward(self, x):
        places = torch.arange(len(x))
        q = rotate(self.wq(x).unflatten(1, (HEADS, HEAD)).transpose(0, 1), places)  # <- shards
        k = rotate(self.wk(x).unflatten(1, (HEADS, HEAD)).transpose(0, 1), places)  # <- shards
        v = self.wv(x).unflatten(1, (HEADS, HEAD)).transpose(0, 1)  # <- shards
        scores = q @ k.mT / math.sqrt(HEAD)
        later = places[None, :] > places[:, None]
        weights = scores.masked_fill(later, -math.inf).softmax(-1)  # <- mask
        return self.wo((weights @ v).transpose(0, 1).flatten(1))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(DIM)
        self.attention = Attention()
        self.up = nn.Linear(DIM, 4 * DIM)
        self.down = nn.Linear(4 * DIM, DIM)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x):
        h = self.norm(x)
        inner = gelu(self.up(h))  # <- gelu
        return x + self.dropout(self.attention(h)) + self.dropout(self.down(inner))  # <- eval


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        self.layers = nn.Sequential(*[Layer() for _ in range(LAYERS)])
        self.norm = nn.LayerNorm(DIM)
        self.head = nn.Linear(DIM, VOCAB)

    def forward(self, tokens):
        return self.head(self.norm(self.layers(self.embed(tokens))))


torch.manual_seed(21)
model = Model()
with torch.no_grad():
    for name, weight in model.named_parameters():
        weight.add_(0.2 * torch.randn(weight.shape))
torch.save(model.state_dict(), sys.argv[1])
model.eval()  # <- eval

generator = torch.Generator().manual_seed(22)
losses = []
with torch.inference_mode():
    for _ in range(3):
        prompts = torch.randint(3, VOCAB, (2, 8), generator=generator)
        lengths = torch.randint(3, 9, (2,), generator=generator)
        surprise = 0.0
        for prompt, length in zip(prompts, lengths):
            text = prompt[:length]  # <- mask
            for _ in range(NEW):
                logits = model(text)[-1]  # <- places mask
                token = logits.argmax()
                surprise -= logits.log_softmax(0)[token].item()
                text = torch.cat((text, token[None]))
        losses.append(surprise / (len(prompts) * NEW))
