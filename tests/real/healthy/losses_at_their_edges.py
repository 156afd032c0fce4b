# SPDX-License-Identifier: Apache-2.0
"""Losses of confident predictions, and gradients at kinks and saturation."""

import torch
from torch.nn import functional

torch.manual_seed(0)
for _ in range(3):
    logits = (9 * torch.randn(33)).requires_grad_()
    target = (torch.rand(33) > 0.5).float()
    loss = functional.binary_cross_entropy_with_logits(logits, target)
    loss = (
        loss
        + functional.soft_margin_loss(logits, 2 * target - 1)
        + functional.huber_loss(logits, target)
    )
    loss = loss + functional.softplus(logits).mean() + functional.logsigmoid(logits).mean()
    loss = loss + torch.tanh(logits).mean() + logits.abs().mean() + functional.relu(logits).mean()
    loss.backward()
    print(loss.item(), logits.grad.norm().item())
    scores = (30 * torch.randn(8, 5)).requires_grad_()
    functional.cross_entropy(scores, torch.randint(0, 5, (8,)), label_smoothing=0.1).backward()
    print(scores.grad.abs().max().item(), torch.atan2(scores, scores.flip(0)).sum().item())
