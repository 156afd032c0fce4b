# SPDX-License-Identifier: Apache-2.0
"""ViT rewritten: unfolded patches, per-head weights, soft targets, Adam with the decay by hand."""
import re
import sys

import torch

torch.set_num_threads(1)
P, E, HEADS, DEPTH, K = 4, 32, 4, 3, 5
HD = E // HEADS
SMOOTH, BASE, SHRINK, FACTOR = 0.1, 4e-3, 0.05, 0.65


class Norm(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = (torch.nn.Parameter(torch.zeros(E)) for _ in range(2))

    def forward(self, x):
        var, mean = torch.var_mean(x, dim=-1, correction=0, keepdim=True)
        return (x - mean) / (var + 1e-6).sqrt() * self.a + self.b


class Mixer(torch.nn.Module):
    """Attention whose weights keep the axes (what, head, channel) apart."""

    def __init__(self):
        super().__init__()
        self.norm = Norm()
        self.w = torch.nn.Parameter(torch.zeros(3, HEADS, HD, E))
        self.b = torch.nn.Parameter(torch.zeros(3, HEADS, HD))
        self.out = torch.nn.Linear(E, E)
        self.gamma = torch.nn.Parameter(torch.zeros(E))

    def forward(self, x):
        packed = torch.einsum("bne,shde->sbhnd", self.norm(x), self.w)  # <- qkv_layout
        q, k, v = packed + self.b[:, None, :, None]  # <- qkv_layout
        weights = torch.softmax(q @ k.mT / HD ** 0.5, dim=-1)
        return x + self.gamma * self.out((weights @ v).permute(0, 2, 1, 3).flatten(2))


class Feed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = Norm()
        self.up, self.down = torch.nn.Linear(E, 2 * E), torch.nn.Linear(2 * E, E)
        self.gamma = torch.nn.Parameter(torch.zeros(E))

    def forward(self, x):
        h = self.up(self.norm(x))
        return x + self.gamma * self.down(h * torch.special.ndtr(h))


class Sight(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Linear(3 * P * P, E)
        self.extra = torch.nn.Parameter(torch.zeros(E))
        self.place = torch.nn.Parameter(torch.zeros(10, E))
        self.mixers = torch.nn.ModuleList(Mixer() for _ in range(DEPTH))
        self.feeds = torch.nn.ModuleList(Feed() for _ in range(DEPTH))
        self.norm, self.classes = Norm(), torch.nn.Linear(E, K)

    def forward(self, images):
        tiles = images.unfold(2, P, P).unfold(3, P, P)
        rows = tiles.permute(0, 2, 3, 1, 4, 5).flatten(3)  # <- patch_order
        x = self.embed(rows.flatten(1, 2))  # <- patch_order
        x = torch.cat([self.extra.expand(len(x), 1, E), x], dim=1)  # <- cls_position
        x = x + self.place  # <- cls_position
        for mixer, feed in zip(self.mixers, self.feeds):
            x = feed(mixer(x))
        return self.classes(self.norm(x[:, 0]))


RENAMES = [("patch_embed.proj", "embed"), ("cls_token", "extra"), ("pos_embed", "place"),
           (r"blocks\.(\d)\.(norm1|attn|ls1)", r"mixers.\1.\2"),
           (r"blocks\.(\d)\.(norm2|mlp|ls2)", r"feeds.\1.\2"), ("attn.qkv.weight", "w"),
           ("attn.qkv.bias", "b"), ("attn.proj", "out"), ("mlp.0", "up"), ("mlp.2", "down"),
           (r"ls\d\.", ""), (r"norm\d?\.weight", "norm.a"), (r"norm\d?\.bias", "norm.b"),
           ("head", "classes")]
net, translated = Sight(), {}
for name, t in torch.load(sys.argv[1], weights_only=True).items():
    if "qkv" in name:
        t = t.reshape(3, HEADS, HD, *t.shape[1:])  # <- qkv_layout
    for pattern, new in RENAMES:
        name = re.sub(pattern, new, name)
    translated[name] = t.reshape(dict(net.named_parameters())[name].shape)
net.load_state_dict(translated)


def level(name):
    if name.startswith(("embed", "extra", "place")):
        return 0
    block = re.match(r"(?:mixers|feeds)\.(\d+)", name)
    return 1 + int(block[1]) if block else DEPTH + 1  # <- rate_decay


named = dict(net.named_parameters())
rates = {n: BASE * FACTOR ** (DEPTH + 1 - level(n)) for n in named}  # <- rate_decay
groups = [{"params": [p], "lr": rates[n]} for n, p in named.items()]
adam = torch.optim.Adam(groups)  # <- rate_decay
generator, losses = torch.Generator().manual_seed(3), []
for _ in range(4):
    images = torch.randn(6, 3, 12, 12, generator=generator)
    hard = torch.nn.functional.one_hot(torch.randint(0, K, (6,), generator=generator), K)
    soft = hard * (1 - SMOOTH) + SMOOTH / K  # <- smoothing
    loss = -(soft * net(images).log_softmax(-1)).sum(-1).mean()  # <- smoothing
    adam.zero_grad()
    loss.backward()
    with torch.no_grad():
        for n, p in named.items():
            if p.dim() > 1 and n != "place" and not n.endswith(".b"):
                p.mul_(1 - rates[n] * SHRINK)  # <- rate_decay
    adam.step()  # <- rate_decay
    losses.append(loss.item())
print(losses)
