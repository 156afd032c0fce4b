# SPDX-License-Identifier: Apache-2.0
"""The translator with encoder and decoder written out, trained without a validation."""

import sys

import numpy as np
import torch
from torch import nn

N_SRC, N_TGT, DIM, N_HEADS, INNER, DEPTH, LONGEST, SENTENCES = 26, 24, 24, 3, 48, 2, 9, 5


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(DIM, DIM) for _ in range(3))
        self.out = nn.Linear(DIM, DIM)

    def forward(self, x, read, allowed):
        q = self.q(x).unflatten(-1, (N_HEADS, -1))
        k = self.k(read).unflatten(-1, (N_HEADS, -1))
        v = self.v(read).unflatten(-1, (N_HEADS, -1))
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k) * (DIM // N_HEADS) ** -0.5
        weights = scores.masked_fill(~allowed, -1e9).softmax(-1)  # <- memory causal
        return self.out(torch.einsum("bhqk,bkhd->bqhd", weights, v).flatten(2))


class FeedForward(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(DIM, INNER), nn.ReLU(), nn.Linear(INNER, DIM))


class EncoderLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn, self.ff = Attention(), FeedForward()
        self.norm1, self.norm2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)

    def forward(self, x, allowed):
        x = self.norm1(x + self.attn(x, x, allowed))
        return self.norm2(x + self.ff(x))


class DecoderLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn, self.cross, self.ff = Attention(), Attention(), FeedForward()
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(DIM) for _ in range(3))

    def forward(self, y, memory, allowed, readable):
        y = self.norm1(y + self.attn(y, y, allowed))
        y = self.norm2(y + self.cross(y, memory, readable))  # <- cross memory
        return self.norm3(y + self.ff(y))


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.src, self.tgt = nn.Embedding(N_SRC, DIM), nn.Embedding(N_TGT, DIM)
        self.encoder = nn.ModuleList(EncoderLayer() for _ in range(DEPTH))
        self.decoder = nn.ModuleList(DecoderLayer() for _ in range(DEPTH))
        self.encoder_norm, self.decoder_norm = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.out = nn.Linear(DIM, N_TGT)
        angle = torch.arange(LONGEST)[:, None] / 10000 ** (torch.arange(0, DIM, 2) / DIM)
        sines = torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)
        self.register_buffer("sines", sines, persistent=False)

    def placed(self, embedding, ids):
        x = embedding(ids) * DIM**0.5  # <- embedding
        return x + self.sines[: ids.shape[1]]  # <- embedding

    def forward(self, src, tgt):
        readable = (src != 0)[:, None, None, :]
        n = tgt.shape[1]
        past = torch.ones(n, n, dtype=torch.bool).tril()  # <- causal
        allowed = past & (tgt != 0)[:, None, None, :]  # <- causal
        x = self.placed(self.src, src)
        for layer in self.encoder:
            x = layer(x, readable)
        memory = self.encoder_norm(x)
        y = self.placed(self.tgt, tgt)
        for layer in self.decoder:
            y = layer(y, memory, allowed, readable)  # <- memory
        return self.out(self.decoder_norm(y))


def attention_of(state, old, new):
    parts = {}
    for kind in ("weight", "bias"):
        for name, part in zip("qkv", state[f"{old}.in_proj_{kind}"].chunk(3)):
            parts[f"{new}.{name}.{kind}"] = part
        parts[f"{new}.out.{kind}"] = state[f"{old}.out_proj.{kind}"]
    return parts


def from_transformer(state):
    new = {
        "src.weight": state["src_tok_emb.embedding.weight"],
        "tgt.weight": state["tgt_tok_emb.embedding.weight"],
    }
    for i in range(DEPTH):
        old = f"transformer.encoder.layers.{i}"
        new |= attention_of(state, f"{old}.self_attn", f"encoder.{i}.attn")
        old = f"transformer.decoder.layers.{i}"
        new |= attention_of(state, f"{old}.self_attn", f"decoder.{i}.attn")
        new |= attention_of(state, f"{old}.multihead_attn", f"decoder.{i}.cross")
    for kind in ("weight", "bias"):
        new[f"out.{kind}"] = state[f"generator.{kind}"]
        for side, norms in (("encoder", 2), ("decoder", 3)):
            new[f"{side}_norm.{kind}"] = state[f"transformer.{side}.norm.{kind}"]
            for i in range(DEPTH):
                old = f"transformer.{side}.layers.{i}"
                new[f"{side}.{i}.ff.0.{kind}"] = state[f"{old}.linear1.{kind}"]
                new[f"{side}.{i}.ff.2.{kind}"] = state[f"{old}.linear2.{kind}"]
                for n in range(1, norms + 1):
                    new[f"{side}.{i}.norm{n}.{kind}"] = state[f"{old}.norm{n}.{kind}"]
    return new


def sentences(rng):
    src, tgt = np.zeros((2, SENTENCES, LONGEST), np.int64)
    for i in range(SENTENCES):
        n, m = rng.integers(3, LONGEST + 1), rng.integers(3, LONGEST - 1)
        src[i, :n] = rng.integers(3, N_SRC, n)
        tgt[i, : m + 2] = [1, *rng.integers(3, N_TGT, m), 2]
    return torch.tensor(src), torch.tensor(tgt)


def smoothed(logits, target, smoothing=0.1):
    log_probs = logits.log_softmax(-1)
    picked = log_probs.gather(-1, target.unsqueeze(-1)).squeeze(-1)
    loss = -(1 - smoothing) * picked - smoothing * log_probs.mean(-1)  # <- smoothing
    return loss[target != 0].mean()  # <- smoothing


model = Translator()
model.load_state_dict(from_transformer(torch.load(sys.argv[1])))
adam = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9)
rng = np.random.default_rng(112)
losses = []
for step in range(1, 5):
    rate = 0.2 * DIM**-0.5 * min(step**-0.5, step * 3**-1.5)  # <- schedule
    adam.param_groups[0]["lr"] = rate
    src, tgt = sentences(rng)
    adam.zero_grad()
    loss = smoothed(model(src, tgt[:, :-1]), tgt[:, 1:])
    loss.backward()
    adam.step()  # <- schedule
    losses.append(loss.item())
