# SPDX-License-Identifier: Apache-2.0
"""Distillation for deployment: the teacher's norms folded into its convolutions, student compiled
and channels last, one soft target for mixup and smoothing.
"""

import sys

import torch
from torch import nn
from torch.nn import functional as F

N_CLASSES, N, TEMPERATURE = 5, 6, 4.0


def folded(state, conv, norm):
    """Weight and bias of a convolution with its batch norm in it."""
    scale = state[f"{norm}.weight"] / torch.sqrt(state[f"{norm}.running_var"] + 1e-5)  # <- fold_eps
    bias = state[f"{norm}.bias"] - state[f"{norm}.running_mean"] * scale  # <- fold_eps
    return state[f"{conv}.weight"] * scale[:, None, None, None], bias


class FrozenTeacher:
    def __init__(self, state):
        self.blocks = []
        for name in ("layer1", "layer2"):
            w1, b1 = folded(state, f"{name}.conv1", f"{name}.bn1")
            w2, b2 = folded(state, f"{name}.conv2", f"{name}.bn2")
            w3, b3 = folded(state, f"{name}.shortcut.0", f"{name}.shortcut.1")
            self.blocks.append((w1, b1, w2, w3, b2 + b3))
        self.head = state["linear.weight"], state["linear.bias"]

    @torch.inference_mode()
    def __call__(self, x):
        seen = []
        for stride, (w1, b1, w2, w3, b) in enumerate(self.blocks, 1):
            y = F.conv2d(x, w1, b1, stride, 1).relu_()  # <- fold_eps
            x = (F.conv2d(y, w2, b, 1, 1) + F.conv2d(x, w3, None, stride)).relu_()  # <- fold_eps
            seen.append(x)
        return F.linear(F.adaptive_avg_pool2d(x, 1).flatten(1), *self.head), seen[0]


def hard_swish(x):
    return x * F.relu6(x + 3) / 6


class Mobile(nn.Module):
    def __init__(self):
        super().__init__()
        self.depth = nn.ModuleList([nn.Conv2d(c, c, 3, groups=c, bias=False) for c in (3, 6)])
        self.depth_norm = nn.ModuleList([nn.BatchNorm2d(c) for c in (3, 6)])
        self.point = nn.ModuleList([nn.Conv2d(*c, 1, bias=False) for c in ((3, 6), (6, 10))])
        self.point_norm = nn.ModuleList([nn.BatchNorm2d(c) for c in (6, 10)])
        self.squeeze, self.excite = nn.Linear(10, 4), nn.Linear(4, 10)
        self.hint = nn.Conv2d(6, 8, 1)
        self.head = nn.Linear(10, N_CLASSES)

    def stage(self, i, x):
        x = F.conv2d(x, self.depth[i].weight, None, i + 1, 1, 1, x.shape[1])  # <- strided
        return self.point_norm[i](self.point[i](hard_swish(self.depth_norm[i](x))))

    def forward(self, x):
        middle = self.stage(0, x)
        x = self.stage(1, hard_swish(middle))
        scale = self.excite(F.relu(self.squeeze(x.mean((2, 3)))))
        x = x * (F.relu6(scale + 3) / 6)[:, :, None, None]  # <- gate
        return self.head(hard_swish(x).mean((2, 3))), self.hint(middle)


def adopt(model, state):
    own = {}
    for key, value in state.items():
        block, _, rest = key.partition(".")
        if block.startswith("block"):
            number, kind = rest.split(".", 1)
            part = {"0": "depth", "1": "depth_norm", "3": "point", "4": "point_norm"}[number]
            own[f"{part}.{int(block[-1]) - 1}.{kind}"] = value
        elif block == "se":
            layer = {"fc1": "squeeze", "fc2": "excite"}[rest[:3]]
            own[f"{layer}.{rest[4:]}"] = value.flatten(1) if value.ndim > 1 else value
        else:
            own[{"regressor": "hint", "classifier": "head"}[block] + f".{rest}"] = value
    model.load_state_dict(own)


checkpoint = torch.load(sys.argv[1])
teach = FrozenTeacher(checkpoint["teacher"])
model = Mobile().to(memory_format=torch.channels_last)
adopt(model, checkpoint["student"])
learn = torch.compile(model, backend="aot_eager")
sgd = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4, foreach=True)
shadow = {}
rng = torch.Generator().manual_seed(62)
losses, agreement = [], []
for epoch in range(4):
    x = torch.randn(N, 3, 8, 8, generator=rng)
    y = F.one_hot(torch.randint(N_CLASSES, (N,), generator=rng), N_CLASSES).float()
    share = 0.5 + 0.5 * torch.rand((), generator=rng).item()
    order = torch.randperm(N, generator=rng)
    x = torch.lerp(x[order], x, share)
    x = x.contiguous(memory_format=torch.channels_last)
    y = share * y + (1 - share) * y[order]
    y = 0.9 * y + 0.1 / N_CLASSES  # <- smoothing
    answer, hint = teach(x)
    logits, guess = learn(x)
    log_hot = (logits / TEMPERATURE).log_softmax(1)
    wanted = (answer / TEMPERATURE).log_softmax(1)
    relative = (wanted.exp() * (wanted - log_hot)).sum(1)  # <- batchmean
    soft = relative.mean() * TEMPERATURE * TEMPERATURE  # <- batchmean
    hard = -(y * logits.log_softmax(1)).sum(1).mean()  # <- smoothing
    loss = 0.7 * soft + 0.3 * hard + 0.3 * (guess - hint).square().mean()  # <- batchmean
    sgd.zero_grad(set_to_none=True)
    loss.backward()
    sgd.step()
    agreement.append((logits.argmax(1) == answer.argmax(1)).float().mean().item())
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name not in shadow:
                shadow[name] = p.clone()  # <- averaging
            shadow[name] += (p - shadow[name]) / (epoch + 1)  # <- averaging
    losses.append(loss.item())
with torch.no_grad():
    x = torch.randn(N, 3, 8, 8, generator=rng)
    logits, _ = torch.func.functional_call(model, shadow, (x,))  # <- averaging
    losses += logits.logsumexp(1).tolist()
