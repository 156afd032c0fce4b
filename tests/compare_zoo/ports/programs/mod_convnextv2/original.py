# SPDX-License-Identifier: Apache-2.0
"""ConvNeXt V2 of the transformers package, tiny, trained with SGD, judged by averaged weights."""

import sys

import numpy as np
import torch
from transformers import ConvNextV2Config, ConvNextV2ForImageClassification

MEAN = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)
STD = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)

torch.manual_seed(23)
config = ConvNextV2Config(
    num_channels=3,
    patch_size=2,
    num_stages=3,
    hidden_sizes=[8, 12, 16],
    depths=[1, 2, 1],
    image_size=16,
    layer_norm_eps=1e-6,
    initializer_range=0.2,
    num_labels=5,
)
model = ConvNextV2ForImageClassification(config)
with torch.no_grad():
    for name, p in model.named_parameters():
        if "grn" in name or "norm" in name:
            p.add_(0.3 * torch.randn_like(p))
torch.save(model.state_dict(), sys.argv[1])

averaged = torch.optim.swa_utils.AveragedModel(
    model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.6)
)
criterion = torch.nn.CrossEntropyLoss(label_smoothing=0.1)  # <- smoothing
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
rng = np.random.RandomState(5)
losses = []
for _ in range(4):
    images = torch.from_numpy(rng.randint(0, 256, (4, 3, 16, 16))).float() / 255.0
    images = (images - MEAN) / STD  # <- constants
    labels = torch.from_numpy(rng.randint(0, 5, 4))
    logits = model(pixel_values=images).logits  # <- residual grn
    loss = criterion(logits, labels)  # <- smoothing
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- nesterov
    averaged.update_parameters(model)  # <- average
    losses.append(loss.item())
averaged.eval()
with torch.no_grad():
    images = torch.from_numpy(rng.randint(0, 256, (4, 3, 16, 16))).float() / 255.0
    scores = averaged(pixel_values=(images - MEAN) / STD).logits
losses.extend(scores.logsumexp(-1).tolist())
