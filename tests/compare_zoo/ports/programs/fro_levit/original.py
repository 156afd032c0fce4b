# SPDX-License-Identifier: Apache-2.0
"""Inference with a distilled LeViT of the transformers package; the loss on three batches."""

import sys

import torch
import torch.nn.functional as F
from transformers import LevitConfig, LevitForImageClassificationWithTeacher

torch.manual_seed(91)
config = LevitConfig(
    image_size=64,
    hidden_sizes=[24, 32, 40],
    num_attention_heads=[2, 3, 4],
    depths=[1, 1, 1],
    key_dim=[4, 4, 4],
    num_labels=7,
    initializer_range=0.2,
)
model = LevitForImageClassificationWithTeacher(config)
with torch.no_grad():
    for module in model.modules():
        if isinstance(module, torch.nn.modules.batchnorm._BatchNorm):
            module.running_mean.normal_(0, 0.3)
            module.running_var.uniform_(0.5, 4)
            module.weight.normal_(1, 0.2)
            module.bias.normal_(0, 0.3)
        elif hasattr(module, "attention_biases"):
            module.attention_biases.normal_()
torch.save(model.state_dict(), sys.argv[1])
model.eval()

generator = torch.Generator().manual_seed(92)
losses = []
with torch.no_grad():
    for _ in range(3):
        images = torch.randint(0, 256, (4, 3, 10, 10), generator=generator) / 255.0
        images = images.repeat_interleave(9, 2).repeat_interleave(9, 3)
        labels = torch.randint(0, 7, (4,), generator=generator)
        images = F.interpolate(images, size=64, mode="bilinear", antialias=True)  # <- resize
        pixel_values = (images - 0.5) / 0.2  # <- resize
        output = model(pixel_values=pixel_values)  # <- resize fold_eps offsets hardswish teacher
        losses.append(F.cross_entropy(output.logits, labels).item())  # <- teacher
