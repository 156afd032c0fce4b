# SPDX-License-Identifier: Apache-2.0
"""Trains a small torchvision Swin transformer in the manner of the torchvision references."""
import sys

import torch
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, SequentialLR
from torchvision.models.swin_transformer import SwinTransformer

torch.set_num_threads(1)

NUM_CLASSES = 7
EPOCH_STEPS = 5
BATCH = 6


def get_model():
    torch.manual_seed(7)
    model = SwinTransformer(  # <- shift_mask bias_index merge_order
        patch_size=[2, 2],
        embed_dim=16,
        depths=[2, 2],
        num_heads=[2, 4],
        window_size=[4, 4],  # <- shift_mask bias_index
        mlp_ratio=2.0,
        stochastic_depth_prob=0.0,
        num_classes=NUM_CLASSES,
    )
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "relative_position_bias_table" in name:
                p.mul_(40.0)
            elif name.endswith("weight") and p.ndim == 2:
                p.mul_(8.0)
    return model


def set_weight_decay(model, weight_decay, norm_weight_decay=0.0, custom_keys=()):
    """Splits the parameters into norm ones, those of custom keys, and others."""
    custom = dict(custom_keys)
    norms = tuple([nn.modules.batchnorm._BatchNorm, nn.LayerNorm, nn.GroupNorm])
    groups = {"other": [], "norm": [], **{k: [] for k in custom}}
    rate = {"other": weight_decay, "norm": norm_weight_decay, **custom}
    for module in model.modules():
        for name, p in module.named_parameters(recurse=False):
            if name in custom:
                groups[name].append(p)
            elif isinstance(module, norms):
                groups["norm"].append(p)
            else:
                groups["other"].append(p)
    return [{"params": ps, "weight_decay": rate[k]} for k, ps in groups.items() if ps]


def make_images(total):
    g = torch.Generator().manual_seed(70)
    images = torch.rand(total, 3, 16, 16, generator=g)
    labels = torch.randint(0, NUM_CLASSES, (total,), generator=g)
    mean = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)
    std = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)
    return torch.utils.data.TensorDataset((images - mean) / std, labels)


def train_one_epoch(model, criterion, optimizer, scheduler, loader):
    model.train()
    history = []
    for image, target in loader:
        output = model(image)  # <- shift_mask bias_index merge_order
        loss = criterion(output, target)  # <- smoothing_share
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()  # <- nesterov_form
        scheduler.step()
        history.append(loss.item())
    return history


model = get_model()
torch.save(model.state_dict(), sys.argv[1])
criterion = nn.CrossEntropyLoss(label_smoothing=0.2)  # <- smoothing_share
parameters = set_weight_decay(model, 0.05, custom_keys=[("relative_position_bias_table", 0.0)])
optimizer = torch.optim.SGD(parameters, lr=0.05, momentum=0.9, nesterov=True)  # <- nesterov_form
warmup = LinearLR(optimizer, start_factor=0.25, total_iters=2)
cosine = CosineAnnealingLR(optimizer, T_max=EPOCH_STEPS - 2, eta_min=0.005)
scheduler = SequentialLR(optimizer, [warmup, cosine], milestones=[2])
loader = torch.utils.data.DataLoader(make_images(EPOCH_STEPS * BATCH), batch_size=BATCH)

losses = train_one_epoch(model, criterion, optimizer, scheduler, loader)
print(losses)
