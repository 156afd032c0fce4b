# SPDX-License-Identifier: Apache-2.0
"""A small Whisper as Radford et al. (2022) have it: an encoder of log mel frames behind two
convolutions and sinusoids, a decoder with cross attention and tied embeddings, own attention.
"""

import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

MELS, FRAMES, STATE, HEADS, LAYERS, VOCAB, TEXT, BATCH = 8, 20, 16, 4, 2, 27, 7, 4
IGNORED = -100


class MultiHeadAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query = nn.Linear(STATE, STATE)
        self.key = nn.Linear(STATE, STATE, bias=False)
        self.value = nn.Linear(STATE, STATE)
        self.out = nn.Linear(STATE, STATE)

    def forward(self, x, xa=None, mask=None):
        source = x if xa is None else xa
        q, k, v = self.query(x), self.key(source), self.value(source)  # <- halves
        return self.out(self.qkv_attention(q, k, v, mask))

    def qkv_attention(self, q, k, v, mask):
        batch, length, _ = q.shape
        scale = (STATE // HEADS) ** -0.25
        q = q.view(batch, length, HEADS, -1).permute(0, 2, 1, 3) * scale
        k = k.view(batch, k.shape[1], HEADS, -1).permute(0, 2, 3, 1) * scale
        v = v.view(batch, v.shape[1], HEADS, -1).permute(0, 2, 1, 3)
        qk = q @ k  # <- halves
        if mask is not None:
            qk = qk + mask[:length, :length]  # <- causal
        w = F.softmax(qk.float(), dim=-1).to(q.dtype)  # <- causal crossed
        return (w @ v).permute(0, 2, 1, 3).flatten(start_dim=2)  # <- halves causal crossed


class ResidualAttentionBlock(nn.Module):
    def __init__(self, *, cross_attention=False):
        super().__init__()
        self.attn, self.attn_ln = MultiHeadAttention(), nn.LayerNorm(STATE)
        self.cross_attn = MultiHeadAttention() if cross_attention else None
        self.cross_attn_ln = nn.LayerNorm(STATE) if cross_attention else None
        self.mlp = nn.Sequential(
            nn.Linear(STATE, 4 * STATE), nn.GELU(), nn.Linear(4 * STATE, STATE)
        )
        self.mlp_ln = nn.LayerNorm(STATE)

    def forward(self, x, xa=None, mask=None):
        x = x + self.attn(self.attn_ln(x), mask=mask)
        if self.cross_attn is not None:
            x = x + self.cross_attn(self.cross_attn_ln(x), xa)
        return x + self.mlp(self.mlp_ln(x))


def sinusoids(length, channels, max_timescale=10000):
    increment = np.log(max_timescale) / (channels // 2 - 1)
    inverse = torch.exp(-increment * torch.arange(channels // 2))  # <- timescale
    scaled = torch.arange(length)[:, None] * inverse[None, :]  # <- timescale
    return torch.cat([torch.sin(scaled), torch.cos(scaled)], dim=1)  # <- timescale


class AudioEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv1d(MELS, STATE, kernel_size=3, padding=1)
        self.conv2 = nn.Conv1d(STATE, STATE, kernel_size=3, stride=2, padding=1)
        self.register_buffer("positional_embedding", sinusoids(FRAMES // 2, STATE))
        self.blocks = nn.ModuleList(ResidualAttentionBlock() for _ in range(LAYERS))
        self.ln_post = nn.LayerNorm(STATE)

    def forward(self, x):
        x = F.gelu(self.conv1(x))
        x = F.gelu(self.conv2(x))  # <- activated
        x = x.permute(0, 2, 1)
        x = x + self.positional_embedding  # <- timescale activated
        for block in self.blocks:
            x = block(x)
        return self.ln_post(x)


class TextDecoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.token_embedding = nn.Embedding(VOCAB, STATE)
        self.positional_embedding = nn.Parameter(torch.randn(TEXT, STATE) * 0.1)
        self.blocks = nn.ModuleList(
            ResidualAttentionBlock(cross_attention=True) for _ in range(LAYERS)
        )
        self.ln = nn.LayerNorm(STATE)
        mask = torch.full((TEXT, TEXT), -torch.inf).triu_(1)
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, x, xa):
        x = self.token_embedding(x) + self.positional_embedding[: x.shape[-1]]
        for block in self.blocks:
            x = block(x, xa, mask=self.mask)
        x = self.ln(x)
        return x @ self.token_embedding.weight.T


class Whisper(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = AudioEncoder(), TextDecoder()

    def forward(self, mel, tokens):
        return self.decoder(tokens, self.encoder(mel))


def log_mel(power):
    log_spec = torch.clamp(power, min=1e-10).log10()  # <- logs
    log_spec = torch.maximum(log_spec, log_spec.amax((1, 2), keepdim=True) - 8.0)
    return (log_spec + 4.0) / 4.0


def make_batches():
    rng = np.random.default_rng(31)
    for _ in range(3):
        power = torch.from_numpy(rng.gamma(0.3, 1.0, (BATCH, MELS, FRAMES)).astype(np.float32))
        tokens = torch.from_numpy(rng.integers(0, VOCAB, (BATCH, TEXT + 1)))
        lengths = torch.from_numpy(rng.integers(3, TEXT + 1, BATCH))
        targets = tokens[:, 1:].clone()
        targets[torch.arange(TEXT) >= lengths[:, None]] = IGNORED
        yield log_mel(power), tokens[:, :-1], targets


torch.manual_seed(31)
model = Whisper()
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.AdamW(
    model.parameters(), lr=3e-3, betas=(0.9, 0.98), eps=1e-6, weight_decay=0.1
)
losses = []
for mel, tokens, labels in make_batches():
    logits, targets = model(mel, tokens).flatten(0, 1), labels.flatten()
    loss = F.cross_entropy(logits, targets, ignore_index=IGNORED)  # <- padded
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()  # <- moments
    losses.append(loss.item())
