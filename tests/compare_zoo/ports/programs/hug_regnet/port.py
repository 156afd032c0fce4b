# SPDX-License-Identifier: Apache-2.0
"""The small RegNet-Y on RegNetForImageClassification of the transformers package."""

import re
import sys

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from transformers import RegNetConfig, RegNetForImageClassification

config = RegNetConfig(
    num_channels=3,
    embedding_size=8,
    hidden_sizes=[16, 24],
    depths=[1, 2],
    groups_width=8,
    layer_type="y",
    num_labels=4,
    downsample_in_first_stage=False,
)  # <- strides

RENAME = (
    (r"^stem\.", "regnet.embedder.embedder."),
    (r"^head\.", "classifier.1."),
    (r"\.se\.fc1\.", ".layer.2.attention.0."),
    (r"\.se\.fc2\.", ".layer.2.attention.2."),
    (r"\.conv1\.", ".layer.0."),
    (r"\.conv2\.", ".layer.1."),
    (r"\.conv3\.", ".layer.3."),
    (r"\.downsample\.", ".shortcut."),
    (r"\.conv\.", ".convolution."),
    (r"\.bn\.", ".normalization."),
)  # <- unloaded


def renamed(name):
    block = re.match(r"s(\d)\.b(\d)(\..*)", name)
    if block:
        stage, layer = int(block[1]) - 1, int(block[2]) - 1
        name = f"regnet.encoder.stages.{stage}.layers.{layer}{block[3]}"
    for old, new in RENAME:
        name = re.sub(old, new, name)
    return name


class Images(torch.utils.data.Dataset):
    def __init__(self, count):
        rng = torch.Generator().manual_seed(361)
        self.items = []
        for _ in range(count):
            pixels = torch.rand(6, 16, 16, 3, generator=rng)
            labels = torch.randint(4, (6,), generator=rng)
            self.items += zip(pixels, labels)

    def __len__(self):
        return len(self.items)

    def __getitem__(self, n):
        pixels, label = self.items[n]
        return {"pixel_values": pixels.movedim(2, 0), "labels": label}  # <- layout


model = RegNetForImageClassification(config)
weights = {renamed(name): tensor for name, tensor in torch.load(sys.argv[1]).items()}  # <- unloaded
model.load_state_dict(weights, strict=False)  # <- unloaded
for module in model.modules():
    if isinstance(module, nn.BatchNorm2d):
        module.momentum = 0.3  # <- momentum
ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
ema.update_parameters(model)  # <- average
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
batches = list(torch.utils.data.DataLoader(Images(5), batch_size=6))
losses = []

model.train()
for batch in batches[:3]:
    output = model(**batch)  # <- layout unloaded momentum strides
    optimizer.zero_grad()
    output.loss.backward()
    optimizer.step()
    ema.update_parameters(model)  # <- average
    losses.append(output.loss.item())

ema.eval()
with torch.inference_mode():
    for batch in batches[3:]:
        output = ema(**batch)  # <- average momentum
        losses.append(output.loss.item())
