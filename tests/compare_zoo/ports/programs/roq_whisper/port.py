# SPDX-License-Identifier: Apache-2.0
"""Whisper training in the layout of the openai package, with a loader that renames the weights."""
import re
import sys
from itertools import islice

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

torch.set_num_threads(1)

N_MELS, N_AUDIO, N_TEXT, STATE, HEADS, VOCAB = 10, 16, 20, 24, 3, 52
EOT, SOT = 50, 51


def sinusoids(length, channels, max_timescale=10000):
    increment = np.log(max_timescale) / (channels // 2 - 1)  # <- sinusoid_step
    rates = torch.exp(-increment * torch.arange(channels // 2))
    times = torch.arange(length)[:, np.newaxis] * rates[np.newaxis, :]
    return torch.cat([times.sin(), times.cos()], dim=1)


class MultiHead(nn.Module):
    def __init__(self):
        super().__init__()
        self.query = nn.Linear(STATE, STATE)
        self.key = nn.Linear(STATE, STATE, bias=False)
        self.value = nn.Linear(STATE, STATE)
        self.out = nn.Linear(STATE, STATE)

    def forward(self, x, source=None, mask=None):
        source = x if source is None else source
        scale = (STATE // HEADS) ** -0.25
        q = self.query(x).unflatten(-1, (HEADS, -1)).permute(0, 2, 1, 3) * scale
        k = self.key(source).unflatten(-1, (HEADS, -1)).permute(0, 2, 3, 1) * scale
        v = self.value(source).unflatten(-1, (HEADS, -1)).permute(0, 2, 1, 3)
        qk = q @ k
        if mask is not None:
            qk = qk + mask[: x.shape[1], : x.shape[1]]
        return self.out((F.softmax(qk, dim=-1) @ v).permute(0, 2, 1, 3).flatten(start_dim=2))


class Block(nn.Module):
    def __init__(self, cross):
        super().__init__()
        self.attn, self.attn_ln = MultiHead(), nn.LayerNorm(STATE)
        self.cross_attn = MultiHead() if cross else None
        self.cross_attn_ln = nn.LayerNorm(STATE) if cross else None
        self.mlp = nn.Sequential(nn.Linear(STATE, 2 * STATE), nn.GELU(), nn.Linear(2 * STATE, STATE))
        self.mlp_ln = nn.LayerNorm(STATE)

    def forward(self, x, xa=None, mask=None):
        x = x + self.attn(self.attn_ln(x), mask=mask)
        if self.cross_attn is not None:
            x = x + self.cross_attn(self.cross_attn_ln(x), xa)
        return x + self.mlp(self.mlp_ln(x))


class Audio(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv1d(N_MELS, STATE, 3, padding=1)
        self.conv2 = nn.Conv1d(STATE, STATE, 3, stride=2, padding=1)
        self.register_buffer("positions", sinusoids(N_AUDIO, STATE), persistent=False)  # <- sinusoid_step positions_trained
        self.blocks = nn.ModuleList([Block(False) for _ in range(2)])
        self.ln_post = nn.LayerNorm(STATE)

    def forward(self, mel: Tensor):
        x = F.gelu(self.conv2(F.gelu(self.conv1(mel)))).permute(0, 2, 1)
        x = x + self.positions  # <- sinusoid_step positions_trained
        for block in self.blocks:
            x = block(x)
        return self.ln_post(x)


class Text(nn.Module):
    def __init__(self):
        super().__init__()
        self.token_embedding = nn.Embedding(VOCAB, STATE)
        self.positional_embedding = nn.Parameter(torch.empty(N_TEXT, STATE))
        self.blocks = nn.ModuleList([Block(True) for _ in range(2)])
        self.ln = nn.LayerNorm(STATE)
        self.register_buffer("mask", torch.full((N_TEXT, N_TEXT), -np.inf).triu_(1), persistent=False)

    def forward(self, tokens, xa):
        x = self.token_embedding(tokens) + self.positional_embedding[: tokens.shape[-1]]
        for block in self.blocks:
            x = block(x, xa, self.mask)
        return self.ln(x) @ self.token_embedding.weight.T


RULES = [("model.", ""), ("layers", "blocks"), ("encoder_attn_layer_norm", "cross_attn_ln"),
         ("self_attn_layer_norm", "attn_ln"), ("final_layer_norm", "mlp_ln"), ("encoder_attn", "cross_attn"),
         ("self_attn", "attn"), ("fc1", "mlp.0"), ("fc2", "mlp.2"), ("embed_tokens", "token_embedding"),
         ("decoder.embed_positions.weight", "decoder.positional_embedding"), ("out_proj", "out"),
         ("k_proj", "key"), ("v_proj", "value"), ("q_proj", "query"),
         ("encoder.layer_norm", "encoder.ln_post"), ("decoder.layer_norm", "decoder.ln")]


def converted(path):
    out = {}
    for key, value in torch.load(path).items():
        for old, new in RULES:
            key = key.replace(old, new)
        out[key] = value
    return {k: v for k, v in out.items() if not re.match("proj_out|encoder.embed_positions", k)}


def stream(seed):
    g = torch.Generator().manual_seed(seed)
    while True:
        mel = torch.randn(N_MELS, 2 * N_AUDIO, generator=g)
        n = int(torch.randint(4, 12, (1,), generator=g))
        yield mel, [SOT, *torch.randint(0, EOT, (n,), generator=g).tolist(), EOT]  # <- start_token


class Adam:
    """Adam with decoupled decay of the matrices, after a clip of the whole gradient."""

    def __init__(self, params):
        self.params, self.n = list(params), 0
        self.first = [torch.zeros_like(p) for p in self.params]
        self.second = [torch.zeros_like(p) for p in self.params]

    @torch.no_grad()
    def update(self, grads, lr, b1=0.9, b2=0.98):
        self.n += 1
        shrink = min(1.0, 1.0 / (float(sum(g.square().sum() for g in grads)) ** 0.5 + 1e-6))
        for p, g, m, v in zip(self.params, grads, self.first, self.second):
            g = g * shrink
            m += (1 - b1) * (g - m)
            v += (1 - b2) * (g * g - v)
            p *= 1 - lr * (0.05 if p.ndim > 1 else 0.0)
            p -= lr * (m / (1 - b1**self.n)) / ((v / (1 - b2**self.n)).sqrt() + 1e-6)  # <- second_moment


net = nn.ModuleDict({"encoder": Audio(), "decoder": Text()})
net.load_state_dict(converted(sys.argv[1]), strict=False)
adam = Adam(net.parameters())  # <- positions_trained
source, losses = stream(190), []
for step in range(5):
    mels, texts = zip(*islice(source, 4))
    longest = max(map(len, texts))
    padded = torch.tensor([t + [EOT] * (longest - len(t)) for t in texts])
    lengths = torch.tensor([len(t) for t in texts])
    weight = (torch.arange(1, longest) < lengths[:, None]).float()  # <- pads_counted
    logits = net["decoder"](padded[:, :-1], net["encoder"](torch.stack(mels)))  # <- start_token
    each = F.cross_entropy(logits.transpose(1, 2), padded[:, 1:], reduction="none")
    loss = (each * weight).sum() / weight.sum()  # <- pads_counted
    grads = torch.autograd.grad(loss, adam.params)
    adam.update(grads, lr=3e-3 * (5 - step) / 5)  # <- positions_trained second_moment
    losses.append(loss.item())
print(losses)
