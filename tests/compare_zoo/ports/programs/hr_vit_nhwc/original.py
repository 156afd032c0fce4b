# SPDX-License-Identifier: Apache-2.0
"""Trains a tiny transformers ViT classifier with SGD, cosine decay and random flips."""
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from transformers import ViTConfig, ViTForImageClassification

torch.set_num_threads(1)

SIZE, CLASSES, COUNT, BATCH = 16, 5, 24, 6


class Blobs(Dataset):
    def __init__(self, seed):
        g = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(0, CLASSES, (COUNT,), generator=g)
        self.images = torch.randn(COUNT, 3, SIZE, SIZE, generator=g)
        self.images += self.labels[:, None, None, None] * 0.3
        self.flip = torch.rand(COUNT, generator=g) < 0.5

    def __len__(self):
        return COUNT

    def __getitem__(self, i):
        image = self.images[i]
        if self.flip[i]:
            image = image.flip(-1)
        return (image - 0.5) / 1.25, self.labels[i]


torch.manual_seed(9)
config = ViTConfig(
    image_size=SIZE,
    patch_size=4,
    num_channels=3,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=48,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
    initializer_range=0.1,
    num_labels=CLASSES,
)
model = ViTForImageClassification(config)
torch.save(model.state_dict(), sys.argv[1])
model.train()

loader = DataLoader(Blobs(31), batch_size=BATCH, shuffle=True, generator=torch.Generator().manual_seed(4))
criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=8)

losses = []
for images, labels in loader:
    logits = model(pixel_values=images).logits
    loss = criterion(logits, labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    losses.append(loss.item())

print(losses)
