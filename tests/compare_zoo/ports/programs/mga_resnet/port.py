# SPDX-License-Identifier: Apache-2.0
"""The bottleneck network again, channels last and without modules: jax habits in torch."""
import sys

import torch
import torch.nn.functional as F

BLOCKS = [("layer1.0", 1), ("layer1.1", 1), ("layer2.0", 2), ("layer2.1", 1)]


def load(path):
    tree = {}
    for key, value in torch.load(path, weights_only=True).items():
        if "running" in key or "num_batches" in key:
            continue
        if value.ndim == 4:  # OIHW to HWIO
            value = value.permute(2, 3, 1, 0)
        elif value.ndim == 2:
            value = value.T
        tree[key] = value.contiguous().clone().requires_grad_(True)
    return tree


def windows(x, size, stride, fill):
    """NHWC to N, H', W', C, size, size."""
    edge = size // 2
    x = F.pad(x, (0, 0, edge, edge, edge, edge), value=fill)
    return x.unfold(1, size, stride).unfold(2, size, stride)


def conv(x, kernel, stride=1):
    return torch.einsum("nhwcij,ijco->nhwo", windows(x, kernel.shape[0], stride, 0.0), kernel)


def max_pool(x):
    x = F.pad(x, (0, 0, 1, 1, 1, 1), value=float("-inf"))  # <- pool_edge
    return x.unfold(1, 3, 2).unfold(2, 3, 2).amax((-2, -1))  # <- pool_edge


def batch_norm(tree, name, x):
    mean = x.mean((0, 1, 2))
    var = x.var((0, 1, 2), correction=0)  # <- bn_var
    scale = tree[name + ".weight"] / torch.sqrt(var + 1e-5)  # <- bn_var
    return (x - mean) * scale + tree[name + ".bias"]  # <- bn_var


def bottleneck(tree, at, x, stride):
    first, second = 1, stride  # <- where_stride
    y = conv(x, tree[at + ".conv1.weight"], first)  # <- where_stride
    y = F.relu(batch_norm(tree, at + ".bn1", y))
    y = conv(y, tree[at + ".conv2.weight"], second)  # <- where_stride
    y = F.relu(batch_norm(tree, at + ".bn2", y))
    y = batch_norm(tree, at + ".bn3", conv(y, tree[at + ".conv3.weight"]))
    if at + ".downsample.0.weight" in tree:
        shortcut = conv(x, tree[at + ".downsample.0.weight"], stride)
        x = batch_norm(tree, at + ".downsample.1", shortcut)
    return F.relu(x + y)


def apply(tree, images):
    x = F.relu(batch_norm(tree, "bn1", conv(images, tree["conv1.weight"])))
    x = max_pool(x)  # <- pool_edge
    for at, stride in BLOCKS:
        x = bottleneck(tree, at, x, stride)
    return x.mean((1, 2)) @ tree["fc.weight"] + tree["fc.bias"]


def smoothed_loss(logits, labels, amount=0.1):
    classes = logits.shape[-1]
    goal = F.one_hot(labels, classes) * (1 - amount) + amount / classes
    return -(goal * F.log_softmax(logits, -1)).sum(-1).mean()


def learning_rate(count, peak=0.1, warm=4):
    return peak * min(1.0, (count + 1) / warm)  # <- warm_start


def sgd(tree, grads, trace, rate):
    for key, grad in grads.items():
        decayed = tree[key].ndim > 1  # <- decay_set
        if decayed:
            grad = grad + 0.05 * tree[key]  # <- decay_set
        trace[key] = grad if key not in trace else 0.9 * trace[key] + grad
        tree[key].sub_(rate * trace[key])  # <- warm_start decay_set


def main():
    tree, trace, history = load(sys.argv[1]), {}, []
    rng = torch.Generator().manual_seed(1)
    mean = torch.tensor([0.485, 0.456, 0.406])
    std = torch.tensor([0.229, 0.224, 0.225])
    for count in range(4):
        images = torch.rand(8, 3, 16, 16, generator=rng).permute(0, 2, 3, 1)
        labels = torch.randint(0, 10, (8,), generator=rng)
        loss = smoothed_loss(apply(tree, (images - mean) / std), labels)
        grads = dict(zip(tree, torch.autograd.grad(loss, list(tree.values()))))
        with torch.no_grad():
            sgd(tree, grads, trace, learning_rate(count))  # <- warm_start
        history.append(loss.item())
    return history


losses = main()
print(losses)
