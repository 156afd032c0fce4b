# SPDX-License-Identifier: Apache-2.0
"""Resampled pictures, transposed convolutions and pools in three types."""

import torch
from torch.nn import functional

torch.manual_seed(0)
for dtype in (torch.float32, torch.bfloat16, torch.float16):
    picture, kernel = torch.randn(2, 4, 9, 11).to(dtype), (torch.randn(4, 3, 3, 3) / 6).to(dtype)
    print(functional.interpolate(picture, scale_factor=2.0, mode="bilinear").mean().item())
    print(functional.interpolate(picture, size=(5, 7), mode="nearest").mean().item())
    print(functional.conv_transpose2d(picture, kernel, padding=1).std().item())
    print(
        functional.conv2d(
            picture.to(memory_format=torch.channels_last),
            kernel.mT[:, :, :2].transpose(0, 1).contiguous(),
        )
        .std()
        .item()
    )
    print(
        functional.avg_pool2d(picture, 3, 2, 1).mean().item(),
        functional.max_pool2d(picture, 2).max(),
    )
