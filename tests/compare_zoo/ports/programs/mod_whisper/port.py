# SPDX-License-Identifier: Apache-2.0
"""Whisper with the classes of its first repository (blocks, ln_post, tied logits) and a loop that
sums gradients over two halves of each batch, with Adam of its own.
"""

import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


def sinusoids(length, channels, max_timescale=10000):
    increment = np.log(max_timescale) / (channels // 2 - 1)
    inv = torch.exp(-increment * torch.arange(channels // 2))
    scaled = torch.arange(length)[:, np.newaxis] * inv[np.newaxis, :]
    return torch.cat([torch.sin(scaled), torch.cos(scaled)], dim=1)


class MultiHeadAttention(nn.Module):
    def __init__(self, n_state, n_head):
        super().__init__()
        self.n_head = n_head
        self.query = nn.Linear(n_state, n_state)
        self.key = nn.Linear(n_state, n_state, bias=False)
        self.value = nn.Linear(n_state, n_state)
        self.out = nn.Linear(n_state, n_state)

    def forward(self, x, xa=None, mask=None):
        q = self.query(x)
        k = self.key(x if xa is None else xa)
        v = self.value(x if xa is None else xa)
        return self.out(self.qkv_attention(q, k, v, mask))

    def qkv_attention(self, q, k, v, mask):
        n_ctx, n_state = q.shape[1:]
        scale = (n_state // self.n_head) ** -0.25
        q = q.view(*q.shape[:2], self.n_head, -1).permute(0, 2, 1, 3) * scale
        k = k.view(*k.shape[:2], self.n_head, -1).permute(0, 2, 3, 1) * scale
        v = v.view(*v.shape[:2], self.n_head, -1).permute(0, 2, 1, 3)
        qk = q @ k
        if mask is not None:
            qk = qk + mask[:n_ctx, :n_ctx]
        w = F.softmax(qk.float(), dim=-1)
        return (w @ v).permute(0, 2, 1, 3).flatten(start_dim=2)


class ResidualAttentionBlock(nn.Module):
    def __init__(self, n_state, n_head, cross_attention=False):
        super().__init__()
        self.attn = MultiHeadAttention(n_state, n_head)
        self.attn_ln = nn.LayerNorm(n_state)
        self.cross_attn = MultiHeadAttention(n_state, n_head) if cross_attention else None
        self.cross_attn_ln = nn.LayerNorm(n_state) if cross_attention else None
        n_mlp = n_state * 2
        self.mlp = nn.Sequential(nn.Linear(n_state, n_mlp), nn.GELU(), nn.Linear(n_mlp, n_state))
        self.mlp_ln = nn.LayerNorm(n_state)

    def forward(self, x, xa=None, mask=None):
        x = x + self.attn(self.attn_ln(x), mask=mask)
        if self.cross_attn:
            x = x + self.cross_attn(self.cross_attn_ln(x), xa)  # <- post
        return x + self.mlp(self.mlp_ln(x))


class AudioEncoder(nn.Module):
    def __init__(self, n_mels, n_ctx, n_state, n_head, n_layer):
        super().__init__()
        self.conv1 = nn.Conv1d(n_mels, n_state, kernel_size=3, padding=1)
        self.conv2 = nn.Conv1d(n_state, n_state, kernel_size=3, stride=2, padding=1)
        self.register_buffer("positional_embedding", sinusoids(n_ctx, n_state))  # <- sinusoids
        self.blocks = nn.ModuleList(ResidualAttentionBlock(n_state, n_head) for _ in range(n_layer))
        self.ln_post = nn.LayerNorm(n_state)

    def forward(self, x):
        x = F.gelu(self.conv1(x))
        x = F.gelu(self.conv2(x))  # <- gelu
        x = x.permute(0, 2, 1)  # <- gelu
        x = x + self.positional_embedding
        for block in self.blocks:
            x = block(x)
        return self.ln_post(x)  # <- post


class TextDecoder(nn.Module):
    def __init__(self, n_vocab, n_ctx, n_state, n_head, n_layer):
        super().__init__()
        self.token_embedding = nn.Embedding(n_vocab, n_state)
        self.positional_embedding = nn.Parameter(torch.empty(n_ctx, n_state))
        self.blocks = nn.ModuleList(
            ResidualAttentionBlock(n_state, n_head, cross_attention=True) for _ in range(n_layer)
        )
        self.ln = nn.LayerNorm(n_state)
        mask = torch.full((n_ctx, n_ctx), -np.inf).triu_(1)
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, x, xa):
        x = self.token_embedding(x) + self.positional_embedding[: x.shape[-1]]
        for block in self.blocks:
            x = block(x, xa, mask=self.mask)
        return self.ln(x) @ self.token_embedding.weight.T


class Whisper(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = AudioEncoder(8, 10, 24, 3, 2)
        self.decoder = TextDecoder(45, 12, 24, 3, 2)

    def forward(self, mel, tokens):
        return self.decoder(tokens, self.encoder(mel))


RENAMED = {
    "model.": "",
    "layers": "blocks",
    "fc1": "mlp.0",
    "fc2": "mlp.2",
    "final_layer_norm": "mlp_ln",
    "encoder_attn_layer_norm": "cross_attn_ln",
    "self_attn_layer_norm": "attn_ln",
    "encoder_attn": "cross_attn",
    "self_attn": "attn",
    "q_proj": "query",
    "k_proj": "key",
    "v_proj": "value",
    "out_proj": "out",
    "encoder.layer_norm": "encoder.ln_post",
    "decoder.layer_norm": "decoder.ln",
    "embed_tokens": "token_embedding",
    "embed_positions.weight": "positional_embedding",
}


def renamed(state):
    new = {}
    for key, value in state.items():
        for old, instead in RENAMED.items():
            key = key.replace(old, instead)  # noqa: PLW2901
        new[key] = value
    new.pop("proj_out.weight")
    return new


class Adam:
    """With the L2 penalty in the gradient."""

    def __init__(self, model, lr, eps, penalty):
        self.model, self.lr, self.eps, self.penalty = model, lr, eps, penalty
        self.count, self.state = 0, {}

    @torch.no_grad()
    def step(self):
        self.count += 1
        right1, right2 = 1 - 0.9**self.count, 1 - 0.999**self.count
        for name, p in self.model.named_parameters():
            if p.grad is None:
                continue
            m, v = self.state.setdefault(name, (torch.zeros_like(p), torch.zeros_like(p)))
            grad = p.grad + self.penalty * p  # <- decoupled
            m.mul_(0.9).add_(grad, alpha=0.1)
            v.mul_(0.999).addcmul_(grad, grad, value=0.001)
            update = (m / right1) / ((v / right2).sqrt() + self.eps)
            p.sub_(self.lr * update)  # <- decoupled sinusoids
            p.grad = None


START = 3
whisper = Whisper()
whisper.load_state_dict(renamed(torch.load(sys.argv[1])))
adam = Adam(whisper, 2e-3, 1e-5, 0.02)
gen = torch.Generator().manual_seed(71)
losses = []
for step in range(4):
    mel = torch.randn(4, 8, 20, generator=gen)
    text = torch.randint(4, 45, (4, 9), generator=gen)
    length = torch.randint(3, 10, (4, 1), generator=gen)
    counted = torch.arange(9) < length
    tokens = torch.cat([torch.full((4, 1), START), text[:, :-1]], dim=1)  # <- start
    everything = counted.sum()
    shown = 0.0
    for half in (slice(0, 2), slice(2, 4)):
        logits = whisper(mel[half], tokens[half])
        nll = F.cross_entropy(logits.flatten(0, 1), text[half].flatten(), reduction="none")
        loss = nll[counted[half].flatten()].sum() / everything  # <- counted
        loss.backward()
        shown += loss.item()
    adam.step()
    losses.append(shown)
