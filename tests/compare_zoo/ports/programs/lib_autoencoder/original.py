# SPDX-License-Identifier: Apache-2.0
"""The first stage of latent diffusion by hand, in the names of its authors: a convolutional
autoencoder with a Gaussian bottleneck, absolute error and a weighed KL term.
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn

WIDTH, LEVELS, LATENT = 12, 2, 3


def normalize():
    return nn.GroupNorm(4, WIDTH, eps=1e-6)


def conv(c_in, c_out, size=3, **more):
    return nn.Conv2d(c_in, c_out, size, padding=more.pop("padding", size // 2), **more)


class ResnetBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.conv1 = normalize(), conv(WIDTH, WIDTH)
        self.norm2, self.conv2 = normalize(), conv(WIDTH, WIDTH)

    def forward(self, x):
        h = self.norm1(x)
        h = self.conv1(h * torch.sigmoid(h))  # <- up_order
        h = self.norm2(h)  # <- up_order
        return x + self.conv2(h * torch.sigmoid(h))


class AttnBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = normalize()
        self.q, self.k, self.v = (conv(WIDTH, WIDTH, 1) for _ in range(3))
        self.proj_out = conv(WIDTH, WIDTH, 1)

    def forward(self, x):
        b, c, h, w = x.shape
        n = self.norm(x)
        q = self.q(n).reshape(b, c, h * w).permute(0, 2, 1)
        k = self.k(n).reshape(b, c, h * w)
        weights = F.softmax(torch.bmm(q, k) * c**-0.5, dim=2)
        v = self.v(n).reshape(b, c, h * w)
        out = torch.bmm(v, weights.permute(0, 2, 1)).reshape(b, c, h, w)
        return x + self.proj_out(out)  # <- transposed


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv_in = conv(3, WIDTH)
        self.down = nn.ModuleList([ResnetBlock() for _ in range(LEVELS)])
        self.downsample = conv(WIDTH, WIDTH, stride=2, padding=0)
        self.mid = nn.Sequential(ResnetBlock(), AttnBlock(), ResnetBlock())
        self.norm_out, self.conv_out = normalize(), conv(WIDTH, 2 * LATENT)

    def forward(self, x):
        h = self.down[0](self.conv_in(x))  # <- range
        h = self.down[1](self.downsample(F.pad(h, (0, 1, 0, 1))))
        h = self.norm_out(self.mid(h))
        return self.conv_out(h * torch.sigmoid(h))


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv_in = conv(LATENT, WIDTH)
        self.mid = nn.Sequential(ResnetBlock(), AttnBlock(), ResnetBlock())
        # counted from the finest level, as in the encoder
        self.up = nn.ModuleList(
            [nn.Sequential(ResnetBlock(), ResnetBlock()) for _ in range(LEVELS)]
        )
        self.upsample = conv(WIDTH, WIDTH)
        self.norm_out, self.conv_out = normalize(), conv(WIDTH, 3)

    def forward(self, z):
        h = self.up[1](self.mid(self.conv_in(z)))  # <- up_order
        h = self.upsample(F.interpolate(h, scale_factor=2.0, mode="nearest"))
        h = self.norm_out(self.up[0](h))  # <- up_order
        return self.conv_out(h * torch.sigmoid(h))


torch.manual_seed(340)
parts = {"encoder": Encoder(), "decoder": Decoder()}
parts.update(quant_conv=conv(2 * LATENT, 2 * LATENT, 1), post_quant_conv=conv(LATENT, LATENT, 1))
model = nn.ModuleDict(parts)
with torch.no_grad():
    for name, p in model.named_parameters():
        if "norm" in name:
            p.add_(0.3 * torch.randn(p.shape))
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, betas=(0.5, 0.9))  # <- betas
generator = torch.Generator().manual_seed(341)
losses = []
for _ in range(4):
    pixels = torch.randint(0, 256, (4, 16, 16, 3), generator=generator, dtype=torch.uint8)
    images = (pixels.permute(0, 3, 1, 2) / 127.5 - 1.0).contiguous()  # <- range
    mean, logvar = model["quant_conv"](model["encoder"](images)).chunk(2, dim=1)
    logvar = logvar.clamp(-30.0, 20.0)
    noise = torch.randn(mean.shape, generator=generator)
    z = mean + torch.exp(0.5 * logvar) * noise  # <- posterior
    output = model["decoder"](model["post_quant_conv"](z))  # <- posterior
    kl = 0.5 * (mean**2 + logvar.exp() - 1.0 - logvar).sum() / len(images)
    loss = (output - images).abs().mean() + 1e-3 * kl  # <- range
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- betas
    losses.append(loss.item())
