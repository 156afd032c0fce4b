# SPDX-License-Identifier: Apache-2.0
"""Masked image modelling without shuffling back: scatter the visible patches on a mask canvas."""

import sys

import torch
import torch.nn.functional as F
from torch import nn


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_a, self.ln_b = (nn.LayerNorm(width, 1e-6) for _ in range(2))
        self.mha = nn.MultiheadAttention(width, heads, batch_first=True)
        self.fc1, self.fc2 = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        h = self.ln_a(x)
        x = x + self.mha(h, h, h, need_weights=False)[0]  # <- heads
        return x + self.fc2(F.gelu(self.fc1(self.ln_b(x))))

    def take(self, state, at):
        names = {
            "norm1": self.ln_a,
            "norm2": self.ln_b,
            "mlp.0": self.fc1,
            "mlp.2": self.fc2,
            "attn.proj": self.mha.out_proj,
        }
        for name, module in names.items():
            module.load_state_dict({k: state[f"{at}{name}.{k}"] for k in ("weight", "bias")})
        self.mha.in_proj_weight.data.copy_(state[at + "attn.qkv.weight"])  # <- heads
        self.mha.in_proj_bias.data.copy_(state[at + "attn.qkv.bias"])  # <- heads
        return self


class MIM(nn.Module):
    def __init__(self, state):
        super().__init__()
        par = lambda name: nn.Parameter(state[name].clone())
        self.embed_w = nn.Parameter(state["patch_embed.weight"].movedim(1, -1).reshape(24, 48))
        self.embed_b = par("patch_embed.bias")
        self.cls, self.where = par("cls_token"), par("pos_embed")
        self.blank, self.where2 = par("mask_token"), par("decoder_pos_embed")
        self.enc = nn.ModuleList(Layer(24, 4).take(state, f"blocks.{i}.") for i in range(2))
        self.ln_w, self.ln_b = par("norm.weight"), par("norm.bias")
        self.mid_w, self.mid_b = par("decoder_embed.weight"), par("decoder_embed.bias")
        self.dec = Layer(16, 2).take(state, "decoder_blocks.0.")
        self.out_w, self.out_b = par("decoder_pred.weight"), par("decoder_pred.bias")

    def forward(self, pixels, noise):
        """pixels: (batch, 16 patches, 48 values), each patch as rows of RGB triples"""
        batch = torch.arange(len(pixels))[:, None]
        seen = noise.topk(4, largest=False, sorted=True).indices
        tokens = F.linear(pixels[batch, seen], self.embed_w, self.embed_b)
        tokens = tokens + self.where[0, 1:][seen]
        first = (self.cls + self.where[:, :1]).expand(len(pixels), 1, 24)
        x = torch.cat([first, tokens], 1)
        for layer in self.enc:
            x = layer(x)
        x = F.linear(F.layer_norm(x, (24,), self.ln_w, self.ln_b, 1e-6), self.mid_w, self.mid_b)
        canvas = self.blank.expand(len(pixels), 16, 16)  # <- restore
        canvas = canvas.index_put((batch, seen), x[:, 1:])  # <- restore
        x = self.dec(torch.cat([x[:, :1], canvas], 1) + self.where2)
        guess = F.linear(x[:, 1:], self.out_w, self.out_b)
        hidden = torch.ones(len(pixels), 16, dtype=torch.bool).index_put(
            (batch, seen), torch.tensor(False)
        )
        wanted = pixels - pixels.mean(-1, keepdim=True)
        spread = wanted.square().sum(-1, keepdim=True)  # <- patchnorm
        wanted = wanted / torch.sqrt(spread / 47 + 1e-6)  # <- patchnorm
        return F.mse_loss(guess[hidden], wanted[hidden])


def cut(images):
    windows = images.unfold(2, 4, 4).unfold(3, 4, 4)  # batch, colour, row, column, y, x
    return windows.permute(0, 2, 3, 4, 5, 1).flatten(3).flatten(1, 2)  # <- pixels


net = MIM(torch.load(sys.argv[1], weights_only=True))
opt = torch.optim.AdamW(  # <- decoupled
    net.parameters(), 6e-3, (0.9, 0.95), weight_decay=0.05, foreach=True
)  # <- decoupled
gen = torch.Generator().manual_seed(77)
losses = []
for _ in range(4):
    images = torch.rand(3, 3, 16, 16, generator=gen)
    opt.zero_grad()
    loss = net(cut(images), torch.rand(3, 16, generator=gen))
    loss.backward()
    opt.step()  # <- decoupled
    losses.append(loss.item())
print(losses)
