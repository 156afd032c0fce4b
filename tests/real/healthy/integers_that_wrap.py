# SPDX-License-Identifier: Apache-2.0
"""Arithmetic of bytes modulo 256, ties, negative quotients, bits: integers as they are meant."""

import torch

torch.manual_seed(0)
for _ in range(3):
    image = torch.randint(0, 256, (3, 9, 11), dtype=torch.uint8)
    other = torch.randint(-128, 128, (37,), dtype=torch.int8)
    print(
        (image.long().sum() % 256).item(), (image > 127).sum().item(), (image == 255).sum().item()
    )
    print(
        image.clamp(3, 250).float().mean().item(), (image >> 2).max().item(), (~image).min().item()
    )
    print(torch.div(other, 7, rounding_mode="floor").tolist()[:4], (other % 5).max().item())
    print(other.argmax().item(), other.sort(stable=True).indices[:3].tolist(), other.topk(3).values)
    print(torch.bitwise_xor(other, 85).sum().item(), other.unique().numel(), (other < -100).sum())
    print(torch.bincount(image.flatten()).max().item(), image.float().div(255).mean().item())
    print(torch.maximum(other, other.flip(0)).sum().item(), other.to(torch.int16).mul(200).max())
