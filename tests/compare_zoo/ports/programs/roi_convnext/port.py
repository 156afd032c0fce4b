# SPDX-License-Identifier: Apache-2.0
"""ConvNeXt classifier in channels-last form with Linear layers, compiled as a whole."""
import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import clip_grad_norm_, clip_grad_value_

torch.set_num_threads(1)
EPS = 1e-6
DIMS = [12, 24]
NUM_CLASSES = 6


class PatchLinear(nn.Linear):
    """Non-overlapping k x k convolution as a Linear over flattened patches (NHWC)."""

    def __init__(self, cin, cout, k):
        super().__init__(cin * k * k, cout)
        self.k = k

    def forward(self, x):
        b, h, w, c = x.shape
        k = self.k
        x = x.view(b, h // k, k, w // k, k, c).permute(0, 1, 3, 2, 4, 5)
        return super().forward(x.reshape(b, h // k, w // k, k * k * c))


class Affine(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(dim))
        self.shift = nn.Parameter(torch.zeros(dim))

    def forward(self, x, eps=EPS):
        return F.layer_norm(x, x.shape[-1:], self.scale, self.shift, eps)  # <- ln_eps


class Mixing(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.kernel = nn.Parameter(torch.empty(dim, 1, 7, 7))
        self.kernel_bias = nn.Parameter(torch.empty(dim))
        self.ln = Affine(dim)
        self.mlp = nn.ModuleList([nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)])
        self.layer_scale = nn.Parameter(torch.empty(dim))

    def forward(self, x):
        y = F.conv2d(x.movedim(-1, 1), self.kernel, self.kernel_bias, padding="same", groups=x.shape[-1])
        y = self.ln(y.movedim(1, -1), eps=EPS)  # <- ln_eps
        y = self.mlp[1](F.gelu(self.mlp[0](y)))
        return torch.addcmul(x, y, self.layer_scale)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        a, b = DIMS
        self.patchify = PatchLinear(3, a, 4)
        self.ln_stem = Affine(a)
        self.mix_a = Mixing(a)
        self.ln_down = Affine(a)
        self.merge = PatchLinear(a, b, 2)
        self.mix_b = Mixing(b)
        self.ln_head = Affine(b)
        self.classifier = nn.Linear(b, NUM_CLASSES)

    def features(self, x):
        x = self.mix_a(self.ln_stem(self.patchify(x)))
        return self.mix_b(self.merge(self.ln_down(x)))

    def forward(self, x):
        z = self.features(x)
        z = self.ln_head(z.flatten(1, 2).mean(1))  # <- head_norm
        return self.classifier(z)


def convert(ckpt):
    hwio = lambda w: w.permute(0, 2, 3, 1).reshape(w.shape[0], -1)
    out = {"patchify.weight": hwio(ckpt["stem.0.weight"]), "patchify.bias": ckpt["stem.0.bias"],
           "merge.weight": hwio(ckpt["downsample.1.weight"]), "merge.bias": ckpt["downsample.1.bias"],
           "classifier.weight": ckpt["head.weight"], "classifier.bias": ckpt["head.bias"]}
    norms = {"ln_stem": "stem.1", "ln_down": "downsample.0", "ln_head": "norm"}
    for new, old in (("mix_a", "stage0"), ("mix_b", "stage1")):
        norms[f"{new}.ln"] = f"{old}.norm"
        out[f"{new}.kernel"] = ckpt[f"{old}.conv_dw.weight"]
        out[f"{new}.kernel_bias"] = ckpt[f"{old}.conv_dw.bias"]
        out[f"{new}.layer_scale"] = ckpt[f"{old}.gamma"]
        for i, fc in enumerate(("fc1", "fc2")):
            out[f"{new}.mlp.{i}.weight"] = ckpt[f"{old}.{fc}.weight"].flatten(1)
            out[f"{new}.mlp.{i}.bias"] = ckpt[f"{old}.{fc}.bias"]
    for new, old in norms.items():
        out[new + ".scale"], out[new + ".shift"] = ckpt[old + ".weight"], ckpt[old + ".bias"]
    return out


def sample(rng):
    pics = torch.rand(6, 3, 32, 32, generator=rng).sub_(0.5).div_(0.25)
    labels = torch.randint(0, NUM_CLASSES, (6,), generator=rng)
    lam = 0.55 + 0.4 * torch.rand((), generator=rng).item()
    partner = torch.arange(5, -1, -1)
    return torch.lerp(pics[partner], pics, lam).permute(0, 2, 3, 1).contiguous(), labels, labels[partner], lam


def main():
    net = Net()
    net.load_state_dict(convert(torch.load(sys.argv[1])))
    fast = torch.compile(net)
    is_vector = lambda p: p.ndim == 1  # <- decay_one_dim
    heavy = [p for p in net.parameters() if not is_vector(p)]
    light = [p for p in net.parameters() if is_vector(p)]
    opt = torch.optim.AdamW([{"params": heavy}, {"params": light, "weight_decay": 0.0}],  # <- decay_one_dim
                            lr=6e-3, betas=(0.9, 0.99), eps=1e-6, weight_decay=0.3)
    rng = torch.Generator().manual_seed(21)
    history = []
    for _ in range(5):
        x, y_a, y_b, lam = sample(rng)
        out = fast(x)
        loss = lam * F.cross_entropy(out, y_a) + (1 - lam) * F.cross_entropy(out, y_b)  # <- mixup_target
        loss.backward()
        clip_grad_norm_(net.parameters(), 0.5)  # <- clip_kind
        opt.step()  # <- decay_one_dim
        opt.zero_grad()
        history.append(float(loss))
    return history


losses = main()
print(losses)
