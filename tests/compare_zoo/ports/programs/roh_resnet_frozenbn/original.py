# SPDX-License-Identifier: Apache-2.0
"""Trains a small basic-block ResNet; after two steps the batch-norm statistics are frozen."""
import sys

import torch
from torch.optim.lr_scheduler import CosineAnnealingLR
from torch.utils.data import DataLoader, TensorDataset
from transformers import ResNetConfig, ResNetForImageClassification

torch.set_num_threads(1)

MEAN = torch.tensor([0.485, 0.456, 0.406]).view(1, 3, 1, 1)
STD = torch.tensor([0.229, 0.224, 0.225]).view(1, 3, 1, 1)
CLASSES = 4
STEPS = 5
FREEZE_AT = 2


def make_dataset(count, seed):
    """Coloured gradients whose direction is the class."""
    g = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, CLASSES, (count,), generator=g)
    pixels = 0.4 * torch.rand(count, 3, 16, 16, generator=g)
    ramp = torch.linspace(0, 0.6, 16)
    for i, label in enumerate(labels.tolist()):
        direction = ramp if label % 2 == 0 else ramp.flip(0)
        plane = direction.view(1, 16) if label < 2 else direction.view(16, 1)
        pixels[i] += plane
    return TensorDataset(pixels, labels)


def preprocess(pixels):
    return (pixels - MEAN) / STD  # <- no_std


def parameter_groups(model, decay):
    decayed, plain = [], []
    for name, parameter in model.named_parameters():
        if "normalization" in name or name.endswith("bias"):  # <- decay_everywhere
            plain.append(parameter)
        else:
            decayed.append(parameter)
    return [{"params": decayed, "weight_decay": decay}, {"params": plain, "weight_decay": 0.0}]  # <- decay_everywhere


def freeze_statistics(model):
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.eval()


torch.manual_seed(29)
config = ResNetConfig(
    num_channels=3,
    embedding_size=8,
    hidden_sizes=[8, 16],
    depths=[1, 1],
    layer_type="basic",
    hidden_act="relu",
    num_labels=CLASSES,
)
model = ResNetForImageClassification(config)
torch.save(model.state_dict(), sys.argv[1])
model.train()

optimizer = torch.optim.SGD(parameter_groups(model, 0.05), lr=0.05, momentum=0.9)
scheduler = CosineAnnealingLR(optimizer, T_max=STEPS)  # <- cosine_early
loader = DataLoader(make_dataset(8 * STEPS, seed=31), batch_size=8)

losses = []
for step, (pixels, labels) in enumerate(loader):
    if step == FREEZE_AT:
        freeze_statistics(model)
    output = model(pixel_values=preprocess(pixels), labels=labels)  # <- variance_biased momentum_swapped no_std
    optimizer.zero_grad()
    output.loss.backward()
    optimizer.step()  # <- decay_everywhere cosine_early
    scheduler.step()  # <- cosine_early
    losses.append(output.loss.item())

print(losses)
