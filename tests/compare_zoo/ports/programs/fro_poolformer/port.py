# SPDX-License-Identifier: Apache-2.0
"""The PoolFormer of the transformers package, on images with the channels first."""

import re
import sys

import torch
from torch import nn
from transformers import PoolFormerConfig, PoolFormerForImageClassification

config = PoolFormerConfig(
    num_encoder_blocks=3,
    depths=[1, 2, 1],
    hidden_sizes=[12, 20, 24],
    patch_sizes=[7, 3, 3],
    strides=[4, 2, 2],
    padding=[2, 1, 1],  # <- padding
    mlp_ratio=2.0,
    pool_size=3,
    use_layer_scale=True,
    num_labels=6,
)
PATTERNS = [
    (r"^patches\.(\d)\.shift$", r"poolformer.encoder.patch_embeddings.\1.projection.bias"),
    (r"^norm\.gain$", "norm.weight"),
    (r"^norm\.bias$", "norm.bias"),
    (r"^head\.", "classifier."),
    (r"^stages\.(\d)\.(\d)\.", r"poolformer.encoder.block.\1.\2."),
    (r"\.norm1\.", ".before_norm."),
    (r"\.norm2\.", ".after_norm."),
    (r"\.gain$", ".weight"),
    (r"\.up\.", ".output.conv1."),
    (r"\.down\.", ".output.conv2."),
]


def renamed(key):
    for pattern, replacement in PATTERNS:
        key = re.sub(pattern, replacement, key)
    return key


def translate(state):
    result = {}
    for old, value in state.items():
        key = renamed(old)
        if key.endswith(".table"):
            stage = key.split(".")[1]
            kernel = value.permute(3, 2, 0, 1)
            result[f"poolformer.encoder.patch_embeddings.{stage}.projection.weight"] = kernel
        elif key.endswith(".gamma"):
            for n, row in enumerate(value, start=1):
                result[key.replace("gamma", f"layer_scale_{n}")] = row  # <- layer_scale
        else:
            pointwise = re.search(r"\.conv[12]\.weight$", key)
            result[key] = value[:, :, None, None] if pointwise else value
    return result


model = PoolFormerForImageClassification(config)
missing, unexpected = model.load_state_dict(
    translate(torch.load(sys.argv[1])), strict=False
)  # <- layer_scale
criterion = nn.CrossEntropyLoss(label_smoothing=0.1)  # <- smoothing
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
scheduler = torch.optim.lr_scheduler.LambdaLR(
    optimizer, lambda n: min(1.0, (n + 1) / 3)
)  # <- warmup


def dataset(size):
    generator = torch.Generator().manual_seed(32)
    for _ in range(size):
        images = torch.randint(0, 256, (4, 32, 32, 3), generator=generator)
        labels = torch.randint(0, 6, (4,), generator=generator)
        pixel_values = images.permute(0, 3, 1, 2).float().mul(1 / 255)  # <- axes
        yield pixel_values.sub(0.5).div(0.25), labels


losses = []
model.train()
for pixel_values, labels in dataset(5):
    output = model(pixel_values=pixel_values)  # <- padding axes layer_scale
    loss = criterion(output.logits, labels)  # <- smoothing
    loss.backward()
    optimizer.step()  # <- warmup
    scheduler.step()  # <- warmup
    optimizer.zero_grad()
    losses.append(loss.item())
