# SPDX-License-Identifier: Apache-2.0
"""Train a small self-conditioned DDPM U-Net with GroupNorm residual blocks."""
import math
import sys

import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(17)


class TimeEmbedding(nn.Module):
    def __init__(self, dim, out):
        super().__init__()
        self.dim = dim
        self.mlp = nn.Sequential(nn.Linear(dim, out), nn.SiLU(), nn.Linear(out, out))

    def forward(self, t):
        half = self.dim // 2
        freqs = torch.exp(-math.log(10000.0) * torch.arange(half) / (half - 1))
        args = t[:, None].float() * freqs[None]
        return self.mlp(torch.cat([args.sin(), args.cos()], dim=-1))


class ResBlock(nn.Module):
    def __init__(self, cin, cout, temb, groups=4):
        super().__init__()
        self.norm1 = nn.GroupNorm(groups, cin)  # <- gn_groups
        self.conv1 = nn.Conv2d(cin, cout, 3, padding=1)
        self.time = nn.Linear(temb, cout)
        self.norm2 = nn.GroupNorm(groups, cout)  # <- gn_groups
        self.conv2 = nn.Conv2d(cout, cout, 3, padding=1)
        self.act = nn.SiLU()
        self.skip = nn.Conv2d(cin, cout, 1) if cin != cout else nn.Identity()

    def forward(self, x, emb):
        h = self.conv1(self.act(self.norm1(x)))  # <- gn_groups
        h = h + self.time(self.act(emb))[:, :, None, None]
        h = self.conv2(self.act(self.norm2(h)))  # <- gn_groups
        return h + self.skip(x)


class UNet(nn.Module):
    def __init__(self, channels=2, base=16, temb=32):
        super().__init__()
        self.time = TimeEmbedding(16, temb)
        self.conv_in = nn.Conv2d(channels * 2, base, 3, padding=1)
        self.down1 = ResBlock(base, base, temb)
        self.pool = nn.Conv2d(base, base, 3, stride=2, padding=1)
        self.down2 = ResBlock(base, 2 * base, temb)
        self.mid = ResBlock(2 * base, 2 * base, temb)
        self.up2 = ResBlock(4 * base, base, temb)
        self.upsample = nn.Upsample(scale_factor=2, mode="nearest")
        self.up1 = ResBlock(2 * base, base, temb)
        self.out = nn.Sequential(nn.GroupNorm(4, base), nn.SiLU(), nn.Conv2d(base, channels, 3, padding=1))

    def forward(self, x, t, cond):
        emb = self.time(t)
        x = self.conv_in(torch.cat([x, cond], dim=1))
        s1 = self.down1(x, emb)
        s2 = self.down2(self.pool(s1), emb)
        h = self.mid(s2, emb)
        h = self.up2(torch.cat([h, s2], dim=1), emb)  # <- skip_order
        h = self.up1(torch.cat([self.upsample(h), s1], dim=1), emb)
        return self.out(h)


class Diffusion(nn.Module):
    def __init__(self, net, timesteps=40):
        super().__init__()
        self.net = net
        betas = torch.linspace(1e-3, 0.12, timesteps)
        self.register_buffer("alpha_bar", torch.cumprod(1 - betas, 0), persistent=False)  # <- alpha_bar

    def q_sample(self, x0, t, noise):
        ab = self.alpha_bar[t].view(-1, 1, 1, 1)  # <- alpha_bar
        return ab.sqrt() * x0 + (1 - ab).sqrt() * noise  # <- alpha_bar

    def predict_x0(self, xt, t, eps):
        ab = self.alpha_bar[t].view(-1, 1, 1, 1)
        return ((xt - (1 - ab).sqrt() * eps) / ab.sqrt()).clamp(-1, 1)

    def loss(self, x0, t, noise, self_cond):
        xt = self.q_sample(x0, t, noise)  # <- alpha_bar
        cond = torch.zeros_like(xt)
        if self_cond:
            with torch.no_grad():  # <- selfcond_grad
                cond = self.predict_x0(xt, t, self.net(xt, t, cond))  # <- selfcond_grad
        eps = self.net(xt, t, cond)
        return nn.functional.mse_loss(eps, noise)


model = Diffusion(UNet())
torch.save(model.net.state_dict(), sys.argv[1])
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, betas=(0.9, 0.99))  # <- adam_bias
gen = torch.Generator().manual_seed(99)

losses = []
for step in range(5):
    x0 = torch.rand(4, 2, 8, 8, generator=gen) * 2 - 1
    t = torch.randint(0, 40, (4,), generator=gen)
    noise = torch.randn(4, 2, 8, 8, generator=gen)
    loss = model.loss(x0, t, noise, self_cond=step % 2 == 1)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- adam_bias
    losses.append(loss.item())
print(losses)
