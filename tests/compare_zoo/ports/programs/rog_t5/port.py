# SPDX-License-Identifier: Apache-2.0
"""The T5-like model as functions over a tree of [in, out] kernels, with an own Adafactor."""
import sys

import numpy as np
import torch

torch.set_num_threads(1)

CFG = dict(vocab=53, emb=32, heads=4, head_dim=8, buckets=8, max_distance=12, layers=2)


def load_tree(path):
    """Flat names with slashes; linear weights become kernels of [in, out]."""
    tree = {}
    for name, w in torch.load(path).items():
        parts = name.replace(".block.", ".layers_").split(".")
        if parts[-1] == "weight":
            parts.pop()
        is_kernel = parts[-1] in {"q", "k", "v", "o", "wi", "wo"}
        tree["/".join(parts)] = (w.t() if is_kernel else w).clone().contiguous().requires_grad_()
    return tree


def norm(x, scale):
    return x / torch.sqrt(torch.mean(x * x, dim=-1, keepdim=True) + 1e-6) * scale


def bucket_table(length, causal):
    """The bucket of each (query, key), worked out in numpy once."""
    n = np.arange(length)[:, None] - np.arange(length)[None, :]
    count, offset = CFG["buckets"], np.zeros_like(n)
    if causal:
        n = np.maximum(n, 0)
    else:
        count //= 2
        offset = np.where(n < 0, count, 0)
        n = np.abs(n)
    exact = count // 2
    ratio = np.log(np.maximum(n, 1).astype(np.float32) / exact) / np.log(CFG["max_distance"] / exact)
    far = np.minimum(exact + (ratio * (count - exact)).astype(np.int64), count - 1)
    return torch.from_numpy(offset + np.where(n < exact, n, far))


def attention(tree, at, xq, xkv, bias):
    def split(name, x):
        return (x @ tree[f"{at}/{name}"]).unflatten(-1, (CFG["heads"], CFG["head_dim"]))

    q, k, v = split("q", xq), split("k", xkv), split("v", xkv)
    logits = torch.einsum("bqhd,bkhd->bhqk", q, k)  # <- attn_scale
    weights = (logits + bias).softmax(-1)  # <- attn_scale
    return torch.einsum("bhqk,bkhd->bqhd", weights, v).flatten(-2) @ tree[f"{at}/o"]


def stack(tree, side, x, mask, memory=None, memory_mask=None):
    table = bucket_table(x.shape[1], causal=side == "decoder")  # <- bias_bidirectional
    rel = tree[f"{side}/layers_0/self_attn/relative_attention_bias"]
    bias = rel.T[:, table] + mask  # <- bias_bidirectional
    for i in range(CFG["layers"]):
        at = f"{side}/layers_{i}"
        y = norm(x, tree[f"{at}/ln1"])
        x = x + attention(tree, f"{at}/self_attn", y, y, bias)
        if side == "decoder":
            x = x + attention(tree, f"{at}/cross_attn", norm(x, tree[f"{at}/ln_cross"]), memory, memory_mask)
        y = norm(x, tree[f"{at}/ln2"])
        x = x + (y @ tree[f"{at}/wi"]).clamp(min=0) @ tree[f"{at}/wo"]
    return norm(x, tree[f"{side}/final_layer_norm"])


def loss_fn(tree, batch):
    table = tree["shared"]
    src_mask = torch.where(batch["inputs"] > 0, 0.0, -1e9)[:, None, None, :]
    t = batch["decoder_inputs"].shape[1]
    causal = torch.where(torch.ones(t, t).tril() > 0, 0.0, -1e9)
    memory = stack(tree, "encoder", table[batch["inputs"]], src_mask)
    y = stack(tree, "decoder", table[batch["decoder_inputs"]], causal, memory, src_mask)
    y = y / np.sqrt(CFG["emb"])  # <- head_scale
    logits = torch.einsum("btd,vd->btv", y, table)  # <- head_scale
    nll = torch.logsumexp(logits, -1) - logits.gather(-1, batch["targets"].unsqueeze(-1)).squeeze(-1)
    weights = (batch["targets"] > 0).float()  # <- pad_in_loss
    return (nll * weights).sum() / weights.sum()  # <- pad_in_loss


class Adafactor:
    """Factored second moments, update clipping at 1 and steps relative to the parameter's scale."""

    def __init__(self, tree, lr, decay=0.8, eps_scale=1e-3):
        self.tree, self.lr, self.decay, self.eps_scale, self.t = tree, lr, decay, eps_scale, 0
        self.rows, self.cols, self.full = {}, {}, {}

    @staticmethod
    def average(store, key, value, rho):
        old = store.get(key, torch.zeros_like(value))
        store[key] = (1 - rho) * old + rho * value
        return store[key]

    @torch.no_grad()
    def apply(self, grads):
        self.t += 1
        rho = self.t ** -self.decay
        step_size = min(self.lr, self.t**-0.5)
        for (name, p), g in zip(self.tree.items(), grads):
            sq = g * g
            if g.ndim == 2:
                row = self.average(self.rows, name, sq.mean(1), rho)
                col = self.average(self.cols, name, sq.mean(0), rho)
                second = torch.outer(row / row.mean(), col)
            else:
                second = self.average(self.full, name, sq, rho)
            update = g / second.clamp(min=torch.finfo(torch.float32).eps ** 2).sqrt()
            update = update / max(1.0, update.square().mean().sqrt().item())
            scale = max(self.eps_scale, p.square().mean().sqrt().item())  # <- param_scale
            p -= step_size * scale * update  # <- param_scale


def batches(seed, count):
    g = torch.Generator().manual_seed(seed)
    src_len, tgt_len = torch.tensor([10, 7, 9, 4]), torch.tensor([8, 5, 6, 7])
    for _ in range(count):
        inputs = torch.randint(2, CFG["vocab"], (4, 10), generator=g)
        targets = torch.randint(2, CFG["vocab"], (4, 8), generator=g)
        inputs = inputs * (torch.arange(10) < src_len[:, None])
        targets = targets * (torch.arange(8) < tgt_len[:, None])
        yield dict(inputs=inputs, targets=targets, decoder_inputs=torch.nn.functional.pad(targets, (1, -1)))


def main():
    tree = load_tree(sys.argv[1])
    opt = Adafactor(tree, lr=2e-2)
    history = []
    for batch in batches(17, 5):
        loss = loss_fn(tree, batch)
        opt.apply(torch.autograd.grad(loss, list(tree.values())))  # <- param_scale
        history.append(loss.item())
    return history


losses = main()
print(losses)
