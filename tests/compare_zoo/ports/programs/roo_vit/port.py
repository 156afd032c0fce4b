# SPDX-License-Identifier: Apache-2.0
"""Channels-last ViT on a matrix of patches; the blocks' weights are stacked along a depth axis."""
import sys

import torch
from torch.func import grad_and_value

torch.set_num_threads(1)

SIDE, P, C, CLASSES = 16, 4, 3, 6
WIDTH, DEPTH, HEADS = 32, 3, 4
HYPER = dict(lr=8e-3, decay=0.2, layer_decay=0.7, b1=0.9, b2=0.999, eps=1e-8)
EPS = 1e-6  # <- norm_eps


def convert(sd):
    """torch state dict -> {"embed/..", "blocks/.. (depth, ...)", "head/.."}."""
    kernel = sd["patch_embed.proj.weight"].permute(2, 3, 1, 0)  # <- patch_order
    params = {
        "embed/kernel": kernel.reshape(P * P * C, WIDTH),  # <- patch_order
        "embed/bias": sd["patch_embed.proj.bias"],
        "embed/cls": sd["cls_token"][0],
        "embed/pos": sd["pos_embed"][0],
        "head/scale": sd["norm.weight"],
        "head/shift": sd["norm.bias"],
        "head/kernel": sd["head.weight"].T,
        "head/bias": sd["head.bias"],
    }
    stack = lambda key: torch.stack([sd[f"blocks.{i}.{key}"] for i in range(DEPTH)])
    names = {
        "ln1/scale": "norm1.weight", "ln1/shift": "norm1.bias", "ln2/scale": "norm2.weight",
        "ln2/shift": "norm2.bias", "proj/bias": "attn.proj.bias", "gain1": "ls1.gamma",
        "gain2": "ls2.gamma", "up/bias": "fc1.bias", "down/bias": "fc2.bias",
    }
    for ours, theirs in names.items():
        params["blocks/" + ours] = stack(theirs)
    for ours, theirs in {"qkv": "attn.qkv", "proj": "attn.proj", "up": "fc1", "down": "fc2"}.items():
        params[f"blocks/{ours}/kernel"] = stack(theirs + ".weight").mT
    return {k: v.clone(memory_format=torch.contiguous_format) for k, v in params.items()}


def standardize(x, scale, shift):
    centred = x - x.mean(-1, keepdim=True)
    var = (centred * centred).mean(-1, keepdim=True)
    return centred / (var + EPS).sqrt() * scale + shift  # <- norm_eps


def patch_matrix(images):
    """(b, h, w, c) -> (b, patches, p * p * c)."""
    b, n = images.shape[0], SIDE // P
    tiles = images.view(b, n, P, n, P, C).transpose(2, 3)
    return tiles.reshape(b, n * n, P * P * C)  # <- patch_order


def self_attention(w, x):
    b, n, _ = x.shape
    q, k, v = (t.view(b, n, HEADS, -1) for t in (x @ w["qkv/kernel"]).split(WIDTH, dim=-1))
    weights = torch.einsum("bqhd,bkhd->bhqk", q, k).div((WIDTH // HEADS) ** 0.5).softmax(-1)
    mixed = torch.einsum("bhqk,bkhd->bqhd", weights, v)
    return mixed.reshape(b, n, WIDTH) @ w["proj/kernel"] + w["proj/bias"]


def mlp(w, x):
    h = x @ w["up/kernel"] + w["up/bias"]
    h = 0.5 * h * (1 + torch.erf(h / 2 ** 0.5))
    return h @ w["down/kernel"] + w["down/bias"]


def apply(params, images):
    x = patch_matrix(images) @ params["embed/kernel"] + params["embed/bias"]  # <- patch_order
    cls = params["embed/cls"].unsqueeze(0).repeat(x.shape[0], 1, 1)
    x = torch.cat((cls, x), 1) + params["embed/pos"]
    stacked = {k[len("blocks/"):]: v for k, v in params.items() if k.startswith("blocks/")}
    for i in range(DEPTH):
        w = {k: v[i] for k, v in stacked.items()}
        x = x + w["gain1"] * self_attention(w, standardize(x, w["ln1/scale"], w["ln1/shift"]))  # <- norm_eps
        x = x + w["gain2"] * mlp(w, standardize(x, w["ln2/scale"], w["ln2/shift"]))  # <- norm_eps
    token = standardize(x[:, 0], params["head/scale"], params["head/shift"])  # <- norm_eps
    return token @ params["head/kernel"] + params["head/bias"]


def loss_fn(params, images, labels, partner, lam):
    logp = apply(params, images).log_softmax(-1)
    rows = torch.arange(len(labels))
    own, other = -logp[rows, labels], -logp[rows, labels[partner]]  # <- mixup_partner
    return (lam * own + (1 - lam) * other).mean()  # <- mixup_partner


def lr_scale(name, p):
    d = HYPER["layer_decay"]
    if name.startswith("blocks/"):
        per_block = d ** (DEPTH - torch.arange(DEPTH))  # <- layer_decay_shifted
        return per_block.view(-1, *[1] * (p.ndim - 1))
    return torch.tensor(d ** (DEPTH + 1) if name.startswith("embed/") else 1.0)


def is_decayed(name, p):
    return p.ndim - name.startswith("blocks/") > 1 and name not in ("embed/cls", "embed/pos")  # <- decay_on_stacked


def adamw_update(params, grads, state, count):
    h, new = HYPER, {}
    for name, p in params.items():
        g = grads[name]
        mu, nu = state[name]
        mu, nu = h["b1"] * mu + (1 - h["b1"]) * g, h["b2"] * nu + (1 - h["b2"]) * g ** 2
        state[name] = mu, nu
        direction = mu / (1 - h["b1"] ** count) / ((nu / (1 - h["b2"] ** count)) ** 0.5 + h["eps"])
        if is_decayed(name, p):  # <- decay_on_stacked
            direction = direction + h["decay"] * p  # <- decay_on_stacked
        new[name] = p - h["lr"] * lr_scale(name, p) * direction  # <- layer_decay_shifted
    return new


def batches(seed=99, size=12):
    rng = torch.Generator().manual_seed(seed)
    for _ in range(5):
        images = 0.5 * torch.randn(size, C, SIDE, SIDE, generator=rng).permute(0, 2, 3, 1).contiguous()
        labels = torch.randint(CLASSES, (size,), generator=rng)
        lam = 0.5 + 0.5 * torch.rand((), generator=rng).item()
        partner = torch.randperm(size, generator=rng)
        yield images.lerp(images[partner], 1 - lam), labels, partner, lam


params = convert(torch.load(sys.argv[1]))
state = {k: (torch.zeros_like(v), torch.zeros_like(v)) for k, v in params.items()}
losses = []
for count, batch in enumerate(batches(), start=1):
    grads, loss = grad_and_value(loss_fn)(params, *batch)  # <- mixup_partner
    params = adamw_update(params, grads, state, count)  # <- layer_decay_shifted decay_on_stacked
    losses.append(loss.item())
print(losses)
