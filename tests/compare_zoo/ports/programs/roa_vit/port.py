# SPDX-License-Identifier: Apache-2.0
"""ViT again: channels-last pictures cut by reshaping, own smoothing, AdamW and averaging by foreach."""
import sys

import torch
from torch import nn
from torch.nn.functional import gelu, layer_norm

torch.set_num_threads(1)


def to_patches(pictures, size):
    """(B, H, W, C) -> (B, tokens, size * size * C), the channel running fastest."""
    b, h, w, c = pictures.shape
    grid = pictures.reshape(b, h // size, size, w // size, size, c)
    return grid.permute(0, 1, 3, 2, 4, 5).reshape(b, (h // size) * (w // size), size * size * c)


class Norm(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.gamma, self.beta = nn.Parameter(torch.empty(d)), nn.Parameter(torch.empty(d))

    def forward(self, x):
        return layer_norm(x, self.gamma.shape, self.gamma, self.beta, 1e-6)


class EncoderBlock(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.norm_a, self.norm_b = Norm(d), Norm(d)
        self.to_qkv, self.merge = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.widen, self.narrow = nn.Linear(d, 2 * d), nn.Linear(2 * d, d)

    def forward(self, x):
        qkv = self.to_qkv(self.norm_a(x)).unflatten(-1, (3, self.heads, -1))
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        mix = torch.softmax((q * q.shape[-1] ** -0.5) @ k.mT, dim=-1)
        x = x + self.merge((mix @ v).transpose(1, 2).flatten(2))
        return x + self.narrow(gelu(self.widen(self.norm_b(x))))


class VisionModel(nn.Module):
    def __init__(self, size=4, d=32, depth=2, heads=4, tokens=9, classes=7):
        super().__init__()
        self.size = size
        self.stem = nn.Linear(size * size * 3, d)
        self.cls = nn.Parameter(torch.empty(d))
        self.table = nn.Parameter(torch.empty(tokens + 1, d))
        self.trunk = nn.Sequential(*[EncoderBlock(d, heads) for _ in range(depth)], Norm(d))
        self.classifier = nn.Linear(d, classes)

    def forward(self, pictures):
        patches = self.stem(to_patches(pictures, self.size)) + self.table[1:]  # <- patch_order
        cls = (self.cls + self.table[0]).expand(len(patches), 1, -1)  # <- cls_position
        return self.classifier(self.trunk(torch.cat((cls, patches), 1))[:, 0])


@torch.no_grad()
def load_timm_like(model, path):
    ck = torch.load(path)
    kernel = ck["patch_embed.proj.weight"]
    flat = kernel.permute(0, 2, 3, 1).reshape(len(kernel), -1)  # <- patch_order
    pairs = [(model.stem.weight, flat), (model.stem.bias, ck["patch_embed.proj.bias"])]  # <- patch_order
    pairs += [(model.cls, ck["cls_token"].view(-1)), (model.table, ck["pos_embed"][0])]
    names = {"to_qkv": "self_attn.in_proj_", "merge": "self_attn.out_proj.", "widen": "linear1.", "narrow": "linear2."}
    for i, block in enumerate(model.trunk[:-1]):
        for ours, theirs in names.items():
            target = getattr(block, ours)
            pairs += [(target.weight, ck[f"blocks.layers.{i}.{theirs}weight"]), (target.bias, ck[f"blocks.layers.{i}.{theirs}bias"])]
        for target, theirs in ((block.norm_a, "norm1"), (block.norm_b, "norm2")):
            pairs += [(target.gamma, ck[f"blocks.layers.{i}.{theirs}.weight"]), (target.beta, ck[f"blocks.layers.{i}.{theirs}.bias"])]
    pairs += [(model.trunk[-1].gamma, ck["norm.weight"]), (model.trunk[-1].beta, ck["norm.bias"])]
    pairs += [(model.classifier.weight, ck["head.weight"]), (model.classifier.bias, ck["head.bias"])]
    for target, value in pairs:
        target.copy_(value)
    return model


def smoothed(labels, classes, amount):
    soft = torch.full((len(labels), classes), amount / classes)  # <- smoothing_others
    return soft.scatter_(1, labels[:, None], 1 - amount + amount / classes)  # <- smoothing_others


def soft_cross_entropy(logits, soft):
    return (torch.logsumexp(logits, 1) * soft.sum(1) - (logits * soft).sum(1)).mean()


def pictures(gen, count, classes=7, side=12):
    labels = torch.randint(0, classes, (count,), generator=gen)
    raw = torch.randint(0, 256, (count, 3, side, side), generator=gen).permute(0, 2, 3, 1).float()
    raw[:, ::2, :, 0] *= ((labels + 1) / classes)[:, None, None]
    return (raw / 255 - torch.tensor([0.485, 0.456, 0.406])) / torch.tensor([0.229, 0.224, 0.225]), labels


class AdamW:
    def __init__(self, params, lr, decay):
        self.params, self.lr, self.decay, self.t = list(params), lr, decay, 0
        self.m = [torch.zeros_like(p) for p in self.params]
        self.v = [torch.zeros_like(p) for p in self.params]

    @torch.no_grad()
    def step(self, grads):
        self.t += 1
        torch._foreach_mul_(self.params, 1 - self.lr * self.decay)  # <- coupled_decay
        for p, g, m, v in zip(self.params, grads, self.m, self.v):
            m.mul_(0.9).add_(g, alpha=0.1)
            v.mul_(0.999).addcmul_(g, g, value=0.001)
            denom = (v / (1 - 0.999**self.t)).sqrt_().add_(1e-8)
            p.addcdiv_(m, denom, value=-self.lr / (1 - 0.9**self.t))


model = load_timm_like(VisionModel(), sys.argv[1])
weights = list(model.parameters())
average = [p.detach().clone() for p in weights]
shadow = dict(zip((name for name, _ in model.named_parameters()), average))
opt = AdamW(weights, lr=2e-3, decay=0.3)
gen = torch.Generator().manual_seed(8)
test_x, test_y = pictures(gen, 10)
losses = []
for _ in range(5):
    x, y = pictures(gen, 8)
    loss = soft_cross_entropy(model(x), smoothed(y, 7, 0.1))
    grads = torch.autograd.grad(loss, weights)
    opt.step(grads)
    torch._foreach_lerp_(average, [p.detach() for p in weights], 0.2)  # <- ema_before_step
    with torch.no_grad():
        out = torch.func.functional_call(model, shadow, (test_x,))
        held = soft_cross_entropy(out, nn.functional.one_hot(test_y, 7).float())
    losses += [loss.item(), held.item()]
print(losses)
