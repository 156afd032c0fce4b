# SPDX-License-Identifier: Apache-2.0
"""A small U-Net for segmentation, trained with AdamW and a cosine schedule; plain float32."""
import sys

import torch
from torch import nn
import torch.nn.functional as F

torch.set_num_threads(1)


class DoubleConv(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, padding=1)
        self.norm1 = nn.InstanceNorm2d(cout, affine=True)
        self.conv2 = nn.Conv2d(cout, cout, 3, padding=1)
        self.norm2 = nn.InstanceNorm2d(cout, affine=True)

    def forward(self, x):
        x = F.leaky_relu(self.norm1(self.conv1(x)), 0.1)
        return F.leaky_relu(self.norm2(self.conv2(x)), 0.1)


class UNet(nn.Module):
    def __init__(self, classes=3):
        super().__init__()
        self.enc1 = DoubleConv(1, 6)
        self.enc2 = DoubleConv(6, 12)
        self.middle = DoubleConv(12, 16)
        self.up2 = nn.ConvTranspose2d(16, 12, 2, stride=2)
        self.dec2 = DoubleConv(24, 12)
        self.up1 = nn.ConvTranspose2d(12, 6, 2, stride=2)
        self.dec1 = DoubleConv(12, 6)
        self.out = nn.Conv2d(6, classes, 1)

    def forward(self, x):
        a = self.enc1(x)
        b = self.enc2(F.max_pool2d(a, 2))
        c = self.middle(F.max_pool2d(b, 2))
        x = self.dec2(torch.cat([self.up2(c), b], 1))
        x = self.dec1(torch.cat([self.up1(x), a], 1))
        return self.out(x)


def dice_loss(logits, target, eps=1.0):
    probs = logits.softmax(1)
    onehot = F.one_hot(target, logits.size(1)).permute(0, 3, 1, 2).float()
    inter = (probs * onehot).sum((0, 2, 3))
    return 1 - ((2 * inter + eps) / (probs.sum((0, 2, 3)) + onehot.sum((0, 2, 3)) + eps)).mean()


def make_batch(gen, n=4, size=16):
    images = torch.randn(n, 1, size, size, generator=gen)
    centre = torch.rand(n, 2, generator=gen) * 8 + 4
    grid = torch.stack(torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij"), -1).float()
    far = (grid[None] - centre[:, None, None]).norm(dim=-1)
    masks = (far < 5).long() + (far < 2.5).long()
    return images + masks[:, None], masks


torch.manual_seed(41)
model = UNet()
torch.save(model.state_dict(), sys.argv[1])
# a convolution before an instance norm has a bias without effect: it is not trained
params = [p for n, p in model.named_parameters() if not ("conv" in n and n.endswith("bias"))]
opt = torch.optim.AdamW(params, lr=4e-3, weight_decay=1e-2, eps=1e-5)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=6)
gen = torch.Generator().manual_seed(42)
losses = []
for epoch in range(6):
    x, y = make_batch(gen)
    logits = model(x)
    loss = F.cross_entropy(logits, y) + dice_loss(logits, y)
    model.zero_grad()
    loss.backward()
    opt.step()
    sched.step()
    losses.append(loss.item())
print(losses)
