# SPDX-License-Identifier: Apache-2.0
"""Latent diffusion on texts in the names of its first code: residual blocks with time embeddings,
spatial transformers that read a padded text, now and then no text at all.
"""

import math
import sys

import torch
import torch.nn.functional as F
from torch import nn

WIDTH, HEADS, TEXT, GROUPS = 24, 3, 20, 4


class ResBlock(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.in_layers = nn.Sequential(
            nn.GroupNorm(GROUPS, channels), nn.SiLU(), nn.Conv2d(channels, WIDTH, 3, padding=1)
        )
        self.emb_layers = nn.Sequential(nn.SiLU(), nn.Linear(4 * WIDTH, WIDTH))
        last = nn.Conv2d(WIDTH, WIDTH, 3, padding=1)
        self.out_layers = nn.Sequential(nn.GroupNorm(GROUPS, WIDTH), nn.SiLU(), nn.Identity(), last)
        self.skip_connection = nn.Conv2d(channels, WIDTH, 1) if channels != WIDTH else nn.Identity()

    def forward(self, x, emb):
        h = self.in_layers(x) + self.emb_layers(emb)[:, :, None, None]  # <- timestep
        return self.skip_connection(x) + self.out_layers(h)


class CrossAttention(nn.Module):
    def __init__(self, context):
        super().__init__()
        self.to_q = nn.Linear(WIDTH, WIDTH, bias=False)
        self.to_k = nn.Linear(context, WIDTH, bias=False)
        self.to_v = nn.Linear(context, WIDTH, bias=False)
        self.to_out = nn.Sequential(nn.Linear(WIDTH, WIDTH))

    def split(self, x):
        b, n, _ = x.shape
        x = x.view(b, n, HEADS, -1).permute(0, 2, 1, 3)  # <- heads
        return x.reshape(b * HEADS, n, -1)  # <- heads

    def forward(self, x, context, mask=None):
        k, v = self.split(self.to_k(context)), self.split(self.to_v(context))
        q = self.split(self.to_q(x))
        sim = torch.einsum("bid,bjd->bij", q, k) * q.shape[-1] ** -0.5  # <- heads
        if mask is not None:
            hidden = ~mask.repeat_interleave(HEADS, 0)[:, None]  # <- text_mask
            sim = sim.masked_fill(hidden, -torch.finfo(sim.dtype).max)  # <- text_mask
        out = torch.einsum("bij,bjd->bid", sim.softmax(-1), v)
        out = out.view(len(x), HEADS, x.shape[1], -1).permute(0, 2, 1, 3)
        return self.to_out(out.reshape(x.shape))


class SpatialTransformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.GroupNorm(GROUPS, WIDTH, eps=1e-6)
        self.proj_in, self.proj_out = nn.Conv2d(WIDTH, WIDTH, 1), nn.Conv2d(WIDTH, WIDTH, 1)
        self.attn1, self.attn2 = CrossAttention(WIDTH), CrossAttention(TEXT)
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(WIDTH) for _ in range(3))
        self.geglu, self.down = nn.Linear(WIDTH, 8 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x, context, mask):
        y = self.proj_in(self.norm(x)).flatten(2).transpose(1, 2)
        n = self.norm1(y)
        y = self.attn1(n, n) + y
        y = self.attn2(self.norm2(y), context, mask) + y  # <- text_mask null_text
        value, gate = self.geglu(self.norm3(y)).chunk(2, dim=-1)
        y = self.down(value * F.gelu(gate)) + y
        return self.proj_out(y.transpose(1, 2).reshape(x.shape)) + x


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.null_text = nn.Buffer(torch.randn(TEXT))
        self.time_embed = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.SiLU(), nn.Linear(4 * WIDTH, 4 * WIDTH)
        )
        self.input = nn.Conv2d(4, WIDTH, 3, padding=1)
        self.input_blocks = nn.ModuleList([ResBlock(WIDTH), SpatialTransformer()])
        self.middle_block = nn.ModuleList([ResBlock(WIDTH), SpatialTransformer(), ResBlock(WIDTH)])
        self.output_blocks = nn.ModuleList([ResBlock(2 * WIDTH), ResBlock(2 * WIDTH)])
        self.out = nn.Sequential(
            nn.GroupNorm(GROUPS, WIDTH), nn.SiLU(), nn.Conv2d(WIDTH, 4, 3, padding=1)
        )

    def forward(self, x, t, context, mask):
        freqs = torch.exp(-math.log(10000) * torch.arange(WIDTH // 2) / (WIDTH // 2))
        args = t[:, None].float() * freqs[None]  # <- timestep
        emb = self.time_embed(torch.cat((args.cos(), args.sin()), dim=-1))  # <- timestep
        first = self.input(x)  # <- schedule
        second = self.input_blocks[1](self.input_blocks[0](first, emb), context, mask)
        h = self.middle_block[1](self.middle_block[0](second, emb), context, mask)
        h = self.middle_block[2](h, emb)
        h = self.output_blocks[0](torch.cat((h, second), 1), emb)
        return self.out(self.output_blocks[1](torch.cat((h, first), 1), emb))


torch.manual_seed(400)
model = Denoiser()
torch.save(model.state_dict(), sys.argv[1])
betas = torch.linspace(0.00085**0.5, 0.012**0.5, 1000, dtype=torch.float64) ** 2  # <- schedule
kept = torch.cumprod(1 - betas, 0).float()[:, None, None, None]  # <- schedule
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, eps=1e-6)
generator = torch.Generator().manual_seed(401)
losses = []
for _ in range(4):
    z = torch.randn(4, 4, 8, 8, generator=generator) * 0.8
    texts = torch.randn(4, 7, TEXT, generator=generator)
    mask = torch.arange(7) < torch.randint(2, 7, (4, 1), generator=generator)
    nothing = torch.rand(4, 1, 1, generator=generator) < 0.4
    t = torch.randint(1, 1001, (4,), generator=generator)  # <- timestep
    noise = torch.randn(z.shape, generator=generator)
    texts = torch.where(nothing, model.null_text, texts)  # <- null_text
    noisy = kept[t - 1].sqrt() * z + (1 - kept[t - 1]).sqrt() * noise  # <- schedule
    loss = F.mse_loss(model(noisy, t, texts, mask), noise)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
