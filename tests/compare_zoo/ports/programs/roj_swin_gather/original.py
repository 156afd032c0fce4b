# SPDX-License-Identifier: Apache-2.0
"""torchvision Swin transformer on tiny pictures: frozen patch projection, class-weighted loss, Adam with L2."""
import sys
from functools import partial

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchvision.models.swin_transformer import SwinTransformer

torch.set_num_threads(1)


def random_dataset(n, num_classes):
    gen = torch.Generator().manual_seed(31)
    x = torch.randn(n, 3, 16, 16, generator=gen)
    ramp = torch.arange(16.0) / 8 - 1
    x = x + ramp.view(1, 1, 16, 1) - 0.5 * ramp.view(1, 1, 1, 16)
    probs = torch.tensor([0.4, 0.3, 0.15, 0.1, 0.05])
    y = torch.multinomial(probs.expand(n, num_classes), 1, generator=gen).squeeze(1)
    return TensorDataset(x, y)


def init_weights(model, seed):
    """Stronger than the defaults, so that the tiny network does something at all."""
    gen = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.endswith("relative_position_bias_table"):
                p.normal_(0.0, 0.5, generator=gen)
            elif p.ndim == 2:
                p.normal_(0.0, p.shape[1] ** -0.5, generator=gen)


def main(path):
    num_classes, steps, batch = 5, 5, 6
    torch.manual_seed(5)
    model = SwinTransformer(  # <- no_shift_mask merge_order
        patch_size=[2, 2],
        embed_dim=12,
        depths=[2, 1],
        num_heads=[2, 3],
        window_size=[4, 4],  # <- no_shift_mask
        mlp_ratio=2.0,
        stochastic_depth_prob=0.0,
        num_classes=num_classes,
        norm_layer=partial(nn.LayerNorm, eps=1e-5),
    )
    init_weights(model, seed=8)
    torch.save(model.state_dict(), path)

    # the patch projection stays random (MoCo v3 found this to train more stably)
    patch_conv = model.features[0][0]
    patch_conv.requires_grad_(False)  # <- patch_projection_trained

    dataset = random_dataset(batch * steps, num_classes)
    counts = torch.bincount(dataset.tensors[1], minlength=num_classes).float()
    class_weight = 1.0 / counts.clamp(min=1.0).sqrt()
    criterion = nn.CrossEntropyLoss(weight=class_weight)  # <- weighted_mean_by_count

    trainable = [p for p in model.parameters() if p.requires_grad]  # <- patch_projection_trained
    optimizer = torch.optim.Adam(trainable, lr=2e-3, betas=(0.9, 0.98), weight_decay=0.05)  # <- decoupled_decay

    model.train()
    losses = []
    for x, y in DataLoader(dataset, batch_size=batch):
        logits = model(x)  # <- no_shift_mask merge_order
        loss = criterion(logits, y)  # <- weighted_mean_by_count
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()  # <- decoupled_decay patch_projection_trained
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    losses = main(sys.argv[1])
    print(losses)
