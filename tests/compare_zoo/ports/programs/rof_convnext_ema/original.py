# SPDX-License-Identifier: Apache-2.0
"""Train a tiny ConvNeXt classifier with label smoothing and a mean teacher."""
import copy
import sys

import torch
from torch import nn
from transformers import ConvNextConfig, ConvNextForImageClassification

torch.set_num_threads(1)

MEAN = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)
STD = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)
CLASSES = 5
TEACHER_DECAY = 0.9
CONSISTENCY = 0.5


def make_batches(steps, size):
    generator = torch.Generator().manual_seed(21)
    for _ in range(steps):
        images = torch.randint(0, 256, (size, 3, 16, 16), generator=generator, dtype=torch.uint8)
        labels = torch.randint(0, CLASSES, (size,), generator=generator)
        yield (images / 255 - MEAN) / STD, labels


class MeanTeacher:
    """Exponential moving average of a model's weights."""

    def __init__(self, model, decay):
        self.decay = decay
        self.model = copy.deepcopy(model)  # <- teacher_start
        self.model.requires_grad_(False)

    @torch.no_grad()
    def update(self, model):
        for mean, value in zip(self.model.parameters(), model.parameters()):
            mean.mul_(self.decay).add_(value, alpha=1 - self.decay)  # <- teacher_start

    @torch.no_grad()
    def __call__(self, pixel_values):
        return self.model(pixel_values=pixel_values).logits


torch.manual_seed(20)
shape = dict(num_channels=3, patch_size=4, num_stages=2, hidden_sizes=[8, 16], depths=[1, 1])
config = ConvNextConfig(**shape, num_labels=CLASSES, hidden_act="gelu", initializer_range=0.4)  # <- gelu_form
config.layer_scale_init_value = 1.0
config.drop_path_rate = 0.0
student = ConvNextForImageClassification(config)
torch.save(student.state_dict(), sys.argv[1])

teacher = MeanTeacher(student, TEACHER_DECAY)
criterion = nn.CrossEntropyLoss(label_smoothing=0.1)  # <- smoothing
matrices = [p for p in student.parameters() if p.ndim > 1]
vectors = [p for p in student.parameters() if p.ndim <= 1]
groups = [{"params": matrices, "weight_decay": 1e-2}, {"params": vectors, "weight_decay": 0.0}]
optimizer = torch.optim.SGD(groups, lr=0.05, momentum=0.9, nesterov=True)  # <- nesterov

losses = []
student.train()
for pixel_values, labels in make_batches(steps=5, size=6):
    logits = student(pixel_values=pixel_values).logits  # <- gelu_form biased_variance
    target = teacher(pixel_values)  # <- teacher_start
    loss = criterion(logits, labels)  # <- smoothing
    loss = loss + CONSISTENCY * nn.functional.mse_loss(logits, target)

    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- nesterov
    teacher.update(student)
    losses.append(loss.item())

print(losses)
