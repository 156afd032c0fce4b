# SPDX-License-Identifier: Apache-2.0
"""The ConvNeXt channels-last: patches and matrices in place of convolutions, and a hand-made momentum loop."""
import sys

import torch

torch.set_num_threads(1)

PIXEL_MEAN = (0.485, 0.456, 0.306)
PIXEL_STD = (0.229, 0.264, 0.325)
CLASSES, SMOOTHING, MOMENTUM, KEEP = 10, 0.2, 0.9, 0.8


def tree_from(path):
    """A conv kernel (o, i, h, w) over patches becomes a matrix (h*w*i, o)."""
    sd = torch.load(path)

    def patch(name):
        return sd[name + ".weight"].permute(2, 3, 1, 0).flatten(0, 2), sd[name + ".bias"]

    def block(name):
        return {"depth": sd[name + ".dwconv.weight"].squeeze(1).permute(1, 2, 0), "depth_b": sd[name + ".dwconv.bias"],
                "ln": sd[name + ".norm.weight"], "ln_b": sd[name + ".norm.bias"],
                "wide": patch(name + ".pwconv1")[0], "wide_b": sd[name + ".pwconv1.bias"],
                "narrow": patch(name + ".pwconv2")[0], "narrow_b": sd[name + ".pwconv2.bias"],
                "gain": sd[name + ".gamma"].flatten()}

    tree = {"patch4": patch("stem.0"), "ln4": (sd["stem.1.weight"], sd["stem.1.bias"]),
            "ln2": (sd["down.0.weight"], sd["down.0.bias"]), "patch2": patch("down.1"),
            "ln": (sd["norm.weight"], sd["norm.bias"]), "head": (sd["head.weight"].t(), sd["head.bias"])}
    flat = {f"{k}.{i}": t for k, pair in tree.items() for i, t in enumerate(pair)}
    flat.update({f"{s}.{k}": t for s in ("stage1", "stage2") for k, t in block(s).items()})
    return {k: t.clone().contiguous() for k, t in flat.items()}


def norm(x, w, b):
    var, mean = torch.var_mean(x, dim=-1, correction=0, keepdim=True)
    return (x - mean) / (var + 1e-6).sqrt() * w + b


def patches(x, size):
    b, h, w, c = x.shape
    return x.view(b, h // size, size, w // size, size, c).transpose(2, 3).flatten(3)


def block(x, p, at):
    padded = torch.nn.functional.pad(x, (0, 0, 3, 3, 3, 3))
    h, w = x.shape[1:3]
    y = p[at + ".depth_b"].expand_as(x)
    for i in range(7):
        for j in range(7):
            y = y + padded[:, i:i + h, j:j + w] * p[at + ".depth"][i, j]
    y = norm(y, p[at + ".ln"], p[at + ".ln_b"])
    y = torch.nn.functional.gelu(y @ p[at + ".wide"] + p[at + ".wide_b"])
    return torch.addcmul(x, y @ p[at + ".narrow"] + p[at + ".narrow_b"], p[at + ".gain"])


def classify(p, x):
    x = norm(patches(x, 4) @ p["patch4.0"] + p["patch4.1"], p["ln4.0"], p["ln4.1"])
    x = block(x, p, "stage1")
    x = patches(norm(x, p["ln2.0"], p["ln2.1"]), 2) @ p["patch2.0"] + p["patch2.1"]
    x = block(x, p, "stage2").flatten(1, 2)
    x = norm(x.mean(1), p["ln.0"], p["ln.1"])  # <- norm_before_pool
    return x @ p["head.0"] + p["head.1"]


def soft_labels(y):
    hot = torch.eye(CLASSES)[y]
    return hot * (1 - SMOOTHING) + SMOOTHING / CLASSES  # <- smoothing_spread


class Data:
    """Holds the pictures as (N, H, W, C), as the loaders of this code base do."""

    def __init__(self):
        g = torch.Generator().manual_seed(99)
        self.pictures = torch.randint(0, 256, (40, 3, 24, 24), generator=g, dtype=torch.uint8).permute(0, 2, 3, 1).contiguous()
        self.targets = torch.randint(0, 10, (40,), generator=g)
        self.mean = torch.tensor(PIXEL_MEAN)  # <- channel_order
        self.std = torch.tensor(PIXEL_STD)  # <- channel_order

    def __iter__(self):
        for some, wanted in zip(self.pictures.split(8), self.targets.split(8)):
            yield (some / 255.0 - self.mean) / self.std, soft_labels(wanted)  # <- channel_order smoothing_spread


@torch.no_grad()
def momentum_step(params, grads, buffers, lr):
    for k, g in grads.items():
        buffers[k] = MOMENTUM * buffers[k] + g  # <- velocity_form
        params[k].sub_(lr * (g + MOMENTUM * buffers[k]))  # <- velocity_form


@torch.no_grad()
def follow(teacher, params):
    for k in teacher:
        teacher[k].lerp_(params[k], 1 - KEEP)


student = {k: t.requires_grad_() for k, t in tree_from(sys.argv[1]).items()}
teacher = {k: t.detach().clone() for k, t in student.items()}
buffers = {k: torch.zeros_like(t) for k, t in teacher.items()}

losses = []
lr = 0.05
for x, target in Data():
    log_q = torch.log_softmax(classify(student, x), -1)
    log_t = torch.log_softmax(classify(teacher, x), -1)
    hard = -(target * log_q).sum(-1)  # <- smoothing_spread
    distance = (log_t.exp() * (log_t - log_q)).sum(-1)
    loss = (hard + 2 * distance).mean()
    grads = dict(zip(student, torch.autograd.grad(loss, list(student.values()))))
    momentum_step(student, grads, buffers, lr)  # <- velocity_form ema_before_step
    follow(teacher, student)  # <- ema_before_step
    lr *= 0.7
    losses.append(loss.item())
print(losses)
