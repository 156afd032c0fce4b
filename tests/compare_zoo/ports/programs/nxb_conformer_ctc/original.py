# SPDX-License-Identifier: Apache-2.0
"""Conformer encoder with convolutional subsampling, trained with the CTC criterion."""
import sys

import torch
import torch.nn.functional as F
from torch import nn

MELS, DIM, HEADS, KERNEL, UNITS, BLOCKS = 8, 16, 2, 5, 7, 2


class FeedForwardModule(nn.Module):
    def __init__(self, dim, mult=2):
        super().__init__()
        self.net = nn.Sequential(
            nn.LayerNorm(dim), nn.Linear(dim, dim * mult), nn.SiLU(), nn.Linear(dim * mult, dim)
        )

    def forward(self, x):
        return self.net(x)


class ConvolutionModule(nn.Module):
    def __init__(self, dim, kernel_size):
        super().__init__()
        self.layer_norm = nn.LayerNorm(dim)
        self.pointwise_conv1 = nn.Conv1d(dim, 2 * dim, 1)
        self.depthwise_conv = nn.Conv1d(
            dim, dim, kernel_size, padding=(kernel_size - 1) // 2, groups=dim
        )
        self.mid_norm = nn.LayerNorm(dim)
        self.pointwise_conv2 = nn.Conv1d(dim, dim, 1)

    def forward(self, x, padding_mask):
        x = self.layer_norm(x).transpose(1, 2)
        x = F.glu(self.pointwise_conv1(x), dim=1)
        x = x.masked_fill(padding_mask.unsqueeze(1), 0.0)  # <- pad_leak
        x = self.depthwise_conv(x)  # <- pad_leak
        x = F.silu(self.mid_norm(x.transpose(1, 2))).transpose(1, 2)
        return self.pointwise_conv2(x).transpose(1, 2)


class ConformerBlock(nn.Module):
    def __init__(self, dim, heads, kernel_size):
        super().__init__()
        self.ffn1, self.ffn2 = FeedForwardModule(dim), FeedForwardModule(dim)
        self.attn_norm = nn.LayerNorm(dim)
        self.self_attn = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.conv = ConvolutionModule(dim, kernel_size)
        self.final_norm = nn.LayerNorm(dim)

    def forward(self, x, padding_mask):
        x = x + 0.5 * self.ffn1(x)
        y = self.attn_norm(x)
        y, _ = self.self_attn(y, y, y, key_padding_mask=padding_mask, need_weights=False)
        x = x + y
        x = x + self.conv(x, padding_mask)
        x = x + 0.5 * self.ffn2(x)  # <- half_residual
        return self.final_norm(x)


class ConformerCTC(nn.Module):
    def __init__(self):
        super().__init__()
        self.subsample = nn.Conv1d(MELS, DIM, 3, stride=2, padding=1)
        self.blocks = nn.ModuleList([ConformerBlock(DIM, HEADS, KERNEL) for _ in range(BLOCKS)])
        self.ctc_head = nn.Linear(DIM, UNITS)

    def forward(self, feats, lengths):
        x = F.relu(self.subsample(feats.transpose(1, 2))).transpose(1, 2)
        lengths = torch.div(lengths - 1, 2, rounding_mode="floor") + 1  # <- frame_lengths
        steps = torch.arange(x.size(1)).unsqueeze(0)
        padding_mask = steps >= lengths.unsqueeze(1)  # <- frame_lengths
        for block in self.blocks:
            x = block(x, padding_mask)
        return self.ctc_head(x), lengths


def synthetic_batch(gen):
    lengths = torch.tensor([24, 19, 13])
    feats = torch.randn(3, 24, MELS, generator=gen)
    feats = feats * (torch.arange(24)[None, :] < lengths[:, None]).unsqueeze(-1)
    targets = torch.randint(1, UNITS, (3, 4), generator=gen)
    return feats, lengths, targets, torch.tensor([4, 3, 2])


torch.manual_seed(0)
model = ConformerCTC()
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.SGD(  # <- look_ahead
    model.parameters(), lr=0.02, momentum=0.9, nesterov=True)  # <- look_ahead

gen = torch.Generator().manual_seed(9)
losses = []
for _ in range(4):
    feats, lengths, targets, target_lengths = synthetic_batch(gen)
    logits, out_lengths = model(feats, lengths)
    log_probs = logits.log_softmax(dim=-1).transpose(0, 1)
    loss = F.ctc_loss(  # <- frame_lengths label_norm
        log_probs, targets, out_lengths, target_lengths, blank=0)  # <- frame_lengths label_norm
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- look_ahead
    losses.append(loss.item())
print(losses)
