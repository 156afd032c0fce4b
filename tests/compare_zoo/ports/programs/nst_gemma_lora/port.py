# SPDX-License-Identifier: Apache-2.0
"""Low-rank tuning with the update merged into the frozen matrices before every forward pass."""
import re
import sys

import torch

V, D, H, G, C = 43, 24, 4, 2, 8
RANK, ALPHA = 3, 12
frozen = torch.load(sys.argv[1], weights_only=True)
keys = sorted(k for k in frozen if re.search(r"lora_[AB]", k))
factors = torch.nn.ParameterDict({k.replace(".", "/"): frozen.pop(k) for k in keys})
# gains are used as they stand, so the offset goes in once, here
for k in frozen:
    if "norm" in k:  # <- unit_offset
        frozen[k] = frozen[k] + 1  # <- unit_offset


def merged(name):
    A = factors[f"{name}.lora_A.weight".replace(".", "/")]
    B = factors[f"{name}.lora_B.weight".replace(".", "/")]
    delta = (ALPHA / RANK) * (B @ A)  # <- lora_scale
    return frozen[name + ".base_layer.weight"] + delta  # <- lora_scale


def rms(x, name):
    return torch.nn.functional.rms_norm(x, (D,), frozen[name], 1e-6)  # <- unit_offset


def cap(x, limit):
    return limit * (1 - 2 / (torch.exp(2 * x / limit) + 1))


def attention(x, at):
    B, T, _ = x.shape
    q = (x @ merged(at + "q_proj").T).view(B, T, G, H // G, C)  # <- kv_groups
    k = (x @ frozen[at + "k_proj.weight"].T).view(B, T, G, C)
    v = (x @ merged(at + "v_proj").T).view(B, T, G, C)
    score = torch.einsum("btgrc,bsgc->bgrts", q, k) / C ** 0.5  # <- kv_groups cap_order
    score = cap(score, 5.0)  # <- cap_order
    late = torch.ones(T, T, dtype=torch.bool).triu(1)
    share = score.masked_fill(late, -torch.inf).softmax(-1)  # <- cap_order
    mix = torch.einsum("bgrts,bsgc->btgrc", share, v)  # <- kv_groups
    return mix.reshape(B, T, H * C) @ frozen[at + "o_proj.weight"].T


def mlp(x, at):
    a, b = x @ frozen[at + "gate_proj.weight"].T, x @ frozen[at + "up_proj.weight"].T
    t = torch.tanh((2 / torch.pi) ** 0.5 * (a + 0.044715 * a ** 3))
    return (0.5 * a * (1 + t) * b) @ frozen[at + "down_proj.weight"].T


def logits_of(ids):
    table = frozen["embed_tokens.weight"]
    x = torch.nn.functional.embedding(ids, table * D ** 0.5)
    for i in range(2):
        at = f"layers.{i}."
        x = x + attention(rms(x, at + "input_layernorm.weight"), at + "self_attn.")
        x = x + mlp(rms(x, at + "pre_feedforward_layernorm.weight"), at)
    x = rms(x, "norm.weight")  # <- unit_offset
    return cap(x @ table.T, 3.0)


class Adam:
    def __init__(self, named, lr):
        self.named, self.lr, self.t = dict(named), lr, 0
        self.state = {k: (torch.zeros_like(p), torch.zeros_like(p)) for k, p in self.named.items()}

    def step(self):
        self.t += 1
        for k, p in self.named.items():
            m, v = self.state[k]
            m.lerp_(p.grad, 1 - 0.9)
            v.lerp_(p.grad.square(), 1 - 0.999)
            scale = self.lr / (1 - 0.9 ** self.t)
            p.data -= scale * m / ((v / (1 - 0.999 ** self.t)).sqrt() + 1e-8)
            p.grad = None


adam = Adam(factors.items(), 1e-2)
gen = torch.Generator().manual_seed(23)
losses = []
for _ in range(4):
    ids = torch.randint(0, V, (3, 11), generator=gen)
    prompt = torch.randint(2, 7, (3, 1), generator=gen)
    logp = torch.log_softmax(logits_of(ids[:, :-1]), -1)
    told = logp.gather(-1, ids[:, 1:, None]).squeeze(-1)
    answer = torch.arange(1, 11) >= prompt  # <- answer_only
    loss = -told[answer].mean()  # <- answer_only
    loss.backward()
    adam.step()
    losses.append(loss.item())
print(losses)
