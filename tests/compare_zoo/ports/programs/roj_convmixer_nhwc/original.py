# SPDX-License-Identifier: Apache-2.0
"""timm ConvMixer with the TensorFlow flavour of RMSprop and gradient accumulation."""
import argparse

import torch
from timm.loss import BinaryCrossEntropy
from timm.models.convmixer import ConvMixer
from timm.optim import RMSpropTF

torch.set_num_threads(1)


def get_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("weights")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--micro-batch", type=int, default=6)
    parser.add_argument("--accum", type=int, default=2)
    parser.add_argument("--classes", type=int, default=4)
    parser.add_argument("--lr", type=float, default=0.008)
    parser.add_argument("--gamma", type=float, default=0.8)
    parser.add_argument("--smoothing", type=float, default=0.1)
    return parser.parse_args()


def synthetic_batches(args):
    gen = torch.Generator()
    gen.manual_seed(2024)
    rows = torch.linspace(-1, 1, 16).view(1, 1, 16, 1)
    cols = torch.linspace(-1, 1, 16).view(1, 1, 1, 16)
    for _ in range(args.steps * args.accum):
        label = torch.randint(0, args.classes, (args.micro_batch,), generator=gen)
        angle = label.float().view(-1, 1, 1, 1) * 0.7
        image = 0.5 * torch.randn(args.micro_batch, 3, 16, 16, generator=gen)
        image = image + torch.cos(angle) * rows + torch.sin(angle) * cols
        coin = torch.rand(args.micro_batch, generator=gen) < 0.5
        yield image, label, coin


def hflip_some(image, coin):
    image = image.clone()
    image[coin] = image[coin].flip(-1)  # <- flip_wrong_axis
    return image


def main():
    args = get_args()
    torch.manual_seed(0)
    model = ConvMixer(dim=12, depth=2, kernel_size=3, patch_size=2, num_classes=args.classes)  # <- norm_eps_of_keras
    torch.save(model.state_dict(), args.weights)
    model.train()

    criterion = BinaryCrossEntropy(smoothing=args.smoothing)  # <- bce_smoothing_to_half
    optimizer = RMSpropTF(model.parameters(), lr=args.lr, alpha=0.9, eps=1e-3, momentum=0.9, weight_decay=1e-2)  # <- mean_square_from_zero
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=args.gamma)

    history = []
    running = 0.0
    for i, (image, label, coin) in enumerate(synthetic_batches(args)):
        image = hflip_some(image, coin)  # <- flip_wrong_axis
        output = model(image)  # <- norm_eps_of_keras
        loss = criterion(output, label) / args.accum  # <- bce_smoothing_to_half accumulation_not_averaged
        loss.backward()  # <- accumulation_not_averaged
        running += loss.item()
        if (i + 1) % args.accum != 0:
            continue
        optimizer.step()  # <- mean_square_from_zero
        optimizer.zero_grad(set_to_none=True)
        scheduler.step()
        history.append(running)
        running = 0.0
    return history


losses = main()
print(losses)
