# SPDX-License-Identifier: Apache-2.0
"""Momentum contrast: a key encoder that follows the query encoder, a queue of negatives, and a
nearest neighbour evaluation at the end.
"""

import copy
import sys

import torch
import torch.nn.functional as F
from torch import nn

DIM, QUEUE, BATCH, TEMPERATURE, MOMENTUM = 8, 24, 8, 0.2, 0.9
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def encoder():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8),  # <- momentum_bn unbiased
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2, 2),
        nn.Conv2d(8, 16, 3, padding=1, bias=False),
        nn.BatchNorm2d(16),  # <- momentum_bn unbiased
        nn.ReLU(inplace=True),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 16),
        nn.ReLU(inplace=True),
        nn.Linear(16, DIM),
    )


class MoCo(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder_q = encoder()
        self.encoder_k = copy.deepcopy(self.encoder_q)
        for param in self.encoder_k.parameters():
            param.requires_grad = False
        self.register_buffer("queue", F.normalize(torch.randn(DIM, QUEUE), dim=0))
        self.register_buffer("queue_ptr", torch.zeros(1, dtype=torch.long))

    @torch.no_grad()
    def _momentum_update_key_encoder(self):
        for param_q, param_k in zip(self.encoder_q.parameters(), self.encoder_k.parameters()):
            param_k.data = param_k.data * MOMENTUM + param_q.data * (1.0 - MOMENTUM)  # <- late

    @torch.no_grad()
    def _dequeue_and_enqueue(self, keys):
        ptr = int(self.queue_ptr)
        self.queue[:, ptr : ptr + len(keys)] = keys.T  # <- pointer
        self.queue_ptr[0] = (ptr + len(keys)) % QUEUE  # <- pointer

    def forward(self, im_q, im_k):
        q = F.normalize(self.encoder_q(im_q), dim=1)  # <- unbiased
        with torch.no_grad():
            self._momentum_update_key_encoder()
            k = F.normalize(self.encoder_k(im_k), dim=1)  # <- late momentum_bn
        l_pos = torch.einsum("nc,nc->n", [q, k]).unsqueeze(-1)
        l_neg = torch.einsum("nc,ck->nk", [q, self.queue.clone().detach()])
        logits = torch.cat([l_pos, l_neg], dim=1)
        logits /= TEMPERATURE
        self._dequeue_and_enqueue(k)
        return logits, torch.zeros(len(logits), dtype=torch.long)


def adjusted(images):
    mean = torch.tensor(MEAN).view(1, 3, 1, 1)
    std = torch.tensor(STD).view(1, 3, 1, 1)
    return (images / 255.0 - mean) / std  # <- channels


@torch.no_grad()
def knn(model, images):
    """The weighted neighbours in the queue, as votes of its first half against the second."""
    features = F.normalize(model.encoder_q(images), dim=1)  # <- unbiased
    weights = (features @ model.queue / 0.1).exp()
    return weights[:, : QUEUE // 2].sum(1) / weights.sum(1)


torch.manual_seed(31)
model = MoCo()
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.SGD(model.encoder_q.parameters(), lr=0.06, momentum=0.9, weight_decay=1e-2)
scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[2, 4], gamma=0.1)
criterion = nn.CrossEntropyLoss()
generator = torch.Generator().manual_seed(32)
losses = []
for step in range(5):
    pixels = torch.randint(256, (BATCH, 3, 8, 8), generator=generator).float()
    noise = torch.randn(pixels.shape, generator=generator) * 20
    im_q, im_k = adjusted(pixels), adjusted((pixels.flip(-1) + noise).clamp(0, 255))  # <- channels
    output, target = model(im_q, im_k)
    loss = criterion(output, target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- biases_decayed
    scheduler.step()
    losses.append(loss.item())
model.eval()
votes = knn(model, adjusted(torch.randint(256, (6, 3, 8, 8), generator=generator).float()))
losses.extend(votes.tolist())
