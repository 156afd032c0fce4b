# SPDX-License-Identifier: Apache-2.0
"""U-Net for segmentation after a popular repository; dice loss plus cross entropy."""
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)


class DoubleConv(nn.Module):
    """(convolution => [BN] => ReLU) * 2"""

    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.double_conv = nn.Sequential(
            nn.Conv2d(in_channels, out_channels, kernel_size=3, padding=1, bias=False),
            nn.BatchNorm2d(out_channels),  # <- variance
            nn.ReLU(inplace=True),
            nn.Conv2d(out_channels, out_channels, kernel_size=3, padding=1, bias=False),
            nn.BatchNorm2d(out_channels),  # <- variance
            nn.ReLU(inplace=True),
        )

    def forward(self, x):
        return self.double_conv(x)  # <- variance


class Down(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.maxpool_conv = nn.Sequential(nn.MaxPool2d(2), DoubleConv(in_channels, out_channels))

    def forward(self, x):
        return self.maxpool_conv(x)


class Up(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.up = nn.ConvTranspose2d(in_channels, in_channels // 2, kernel_size=2, stride=2)
        self.conv = DoubleConv(in_channels, out_channels)

    def forward(self, x1, x2):
        x1 = self.up(x1)
        diffY = x2.size()[2] - x1.size()[2]
        diffX = x2.size()[3] - x1.size()[3]
        x1 = F.pad(x1, [diffX // 2, diffX - diffX // 2,  # <- pad_side
                        diffY // 2, diffY - diffY // 2])  # <- pad_side
        x = torch.cat([x2, x1], dim=1)  # <- skip_order
        return self.conv(x)  # <- skip_order


class UNet(nn.Module):
    def __init__(self, n_channels=2, n_classes=3, base=6):
        super().__init__()
        self.inc = DoubleConv(n_channels, base)
        self.down1 = Down(base, base * 2)
        self.down2 = Down(base * 2, base * 4)
        self.up1 = Up(base * 4, base * 2)
        self.up2 = Up(base * 2, base)
        self.outc = nn.Conv2d(base, n_classes, kernel_size=1)

    def forward(self, x):
        x1 = self.inc(x)
        x2 = self.down1(x1)
        x3 = self.down2(x2)
        x = self.up1(x3, x2)
        x = self.up2(x, x1)
        return self.outc(x)


def dice_loss(probs, target, smooth=1.0):
    """Over the whole batch, mean of the classes."""
    inter = (probs * target).sum(dim=(0, 2, 3))  # <- dice_axes
    total = probs.sum(dim=(0, 2, 3)) + target.sum(dim=(0, 2, 3))  # <- dice_axes
    return 1 - ((2 * inter + smooth) / (total + smooth)).mean()  # <- dice_axes


def sample(generator):
    """Noisy images of a disc and a bar; the mask says which is where."""
    yy, xx = torch.meshgrid(torch.arange(22), torch.arange(22), indexing="ij")
    masks = torch.zeros(3, 22, 22, dtype=torch.long)
    for mask in masks:
        cy, cx, r, top = torch.randint(5, 12, (4,), generator=generator).tolist()
        mask[top + 5:top + 8] = 2
        mask[(yy - cy) ** 2 + (xx - cx) ** 2 < (r // 2) ** 2 + 2] = 1
    images = torch.randn(3, 2, 22, 22, generator=generator) * 0.5
    return images + torch.stack([masks == 1, masks == 2], dim=1), masks


torch.manual_seed(0)
model = UNet()
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.RMSprop(model.parameters(), lr=5e-4, alpha=0.99, eps=1e-8,  # <- rmsprop_eps
                                weight_decay=1e-4, momentum=0.9)
scheduler = torch.optim.lr_scheduler.PolynomialLR(optimizer, total_iters=10, power=0.9)
criterion = nn.CrossEntropyLoss()
generator = torch.Generator().manual_seed(4)

model.train()
losses = []
for _ in range(4):
    images, true_masks = sample(generator)
    masks_pred = model(images)
    loss = criterion(masks_pred, true_masks)
    one_hot = F.one_hot(true_masks, 3).permute(0, 3, 1, 2).float()
    loss = loss + dice_loss(F.softmax(masks_pred, dim=1), one_hot)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()  # <- rmsprop_eps
    scheduler.step()
    losses.append(loss.item())
print(losses)
