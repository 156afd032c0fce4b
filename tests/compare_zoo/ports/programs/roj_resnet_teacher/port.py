# SPDX-License-Identifier: Apache-2.0
"""Functional mean-teacher ResNet-10: plain tensors in dictionaries, hand-written SGD."""
import sys
from collections import OrderedDict

import torch
import torch.nn.functional as F

torch.set_num_threads(1)

K, N, T = 6, 8, 5
EPS = 0.1
BN_EPS, BN_MOMENTUM = 1e-5, 0.1
MOMENTUM, DECAY, EMA = 0.9, 5e-2, 0.9
STRIDES = (1, 2, 2, 2)
RGB_MEAN = torch.tensor((0.485, 0.456, 0.406))
RGB_STD = torch.tensor((0.229, 0.224, 0.225))


def import_weights(path):
    """torchvision names -> short names; statistics go to a dictionary of their own."""
    raw = torch.load(path)
    weights, stats = OrderedDict(), {}
    for name, value in raw.items():
        if name.endswith("num_batches_tracked"):
            continue
        short = name.replace(".0.downsample.0", "/skip").replace(".0.downsample.1", "/skipnorm")
        short = short.replace(".0.", "/").replace("layer", "s").replace(".weight", ":w").replace(".bias", ":b")
        if "running" in short:
            stats[short.replace(".running_", ":")] = value.clone()
        else:
            weights[short] = value.clone().requires_grad_()
    return weights, stats


def norm(x, w, stats, key, train):
    if train:
        mean = x.mean((0, 2, 3))
        centred = x - mean[:, None, None]
        var = centred.square().mean((0, 2, 3))
        count = x.numel() // x.shape[1]
        with torch.no_grad():
            stats[key + ":mean"].lerp_(mean, BN_MOMENTUM)
            stats[key + ":var"].lerp_(var * count / (count - 1), BN_MOMENTUM)  # <- biased_running_var
    else:
        var = stats[key + ":var"]  # <- biased_running_var
        centred = x - stats[key + ":mean"][:, None, None]
    scale = w[key + ":w"] / torch.sqrt(var + BN_EPS)
    return centred * scale[:, None, None] + w[key + ":b"][:, None, None]


def resnet(w, stats, x, train):
    x = F.conv2d(x, w["conv1:w"], stride=2, padding=3)
    x = F.relu(norm(x, w, stats, "bn1", train))
    x = F.max_pool2d(x, 3, 2, 1)  # <- maxpool_padding
    for i, stride in enumerate(STRIDES, start=1):
        s = f"s{i}/"
        y = F.conv2d(x, w[s + "conv1:w"], stride=stride, padding=1)
        y = F.relu(norm(y, w, stats, s + "bn1", train))
        y = norm(F.conv2d(y, w[s + "conv2:w"], padding=1), w, stats, s + "bn2", train)
        if stride != 1:
            x = norm(F.conv2d(x, w[s + "skip:w"], stride=stride), w, stats, s + "skipnorm", train)
        x = F.relu(x + y)
    return torch.addmm(w["fc:b"], x.flatten(2).mean(-1), w["fc:w"].t())


def batches():
    g = torch.Generator().manual_seed(11)
    pics = torch.randint(0, 256, (N * T, 3, 32, 32), generator=g, dtype=torch.uint8)
    pics = (pics * torch.tensor([1.0, 0.7, 0.4]).view(3, 1, 1)).byte()
    labels = torch.randint(0, K, (N * T,), generator=g)
    for pic, y in zip(pics.split(N), labels.split(N)):
        hwc = pic.permute(0, 2, 3, 1) / 255
        yield ((hwc - RGB_MEAN) / RGB_STD).permute(0, 3, 1, 2).contiguous(), y  # <- channel_order


def loss_fn(logits, y, teacher_prob):
    soft = torch.full((len(y), K), EPS / K)  # <- smoothing_over_others
    soft.scatter_(1, y[:, None], 1 - EPS + EPS / K)  # <- smoothing_over_others
    logp = logits - logits.logsumexp(1, keepdim=True)
    ce = -(soft * logp).sum() / len(y)  # <- smoothing_over_others
    return ce + 20.0 * (logp.exp() - teacher_prob).square().mean()


def main(path):
    weights, stats = import_weights(path)
    t_weights = {k: v.detach().clone() for k, v in weights.items()}
    t_stats = {k: v.clone() for k, v in stats.items()}
    velocity = {}
    out = []
    for step, (x, y) in enumerate(batches()):
        lr = 0.02 * (0.25 + 0.75 * min(step, 4) / 4)
        with torch.no_grad():
            teacher = resnet(t_weights, t_stats, x.flip(-1), train=False).softmax(1)
        loss = loss_fn(resnet(weights, stats, x, train=True), y, teacher)
        grads = torch.autograd.grad(loss, list(weights.values()))
        out.append(loss.item())
        with torch.no_grad():
            for (name, p), g in zip(weights.items(), grads):
                if p.dim() > 1:  # <- decay_everything
                    g = g + DECAY * p  # <- decay_everything
                v = velocity[name] = velocity[name] * MOMENTUM + g if name in velocity else g.clone()
                p -= lr * (g + MOMENTUM * v)
            rate = 1.0 if step == 0 else 1 - EMA
            for mine, live in ((t_weights, weights), (t_stats, stats)):
                for k in mine:
                    mine[k].lerp_(live[k], rate)
    return out


losses = main(sys.argv[1])
print(losses)
