# SPDX-License-Identifier: Apache-2.0
"""Dense graph regression: padded adjacency tensors per edge kind, masked normalisation, nodes last."""
import sys

import torch
import torch.nn as nn

torch.set_num_threads(1)


class MaskedNorm(nn.Module):
    """Batch norm over the real nodes of a padded (graphs, channels, nodes) tensor."""

    def __init__(self, c, eps=1e-5, momentum=0.1):
        super().__init__()
        self.gain, self.offset, self.eps, self.momentum = nn.Parameter(torch.ones(c)), nn.Parameter(torch.zeros(c)), eps, momentum
        self.register_buffer("avg", torch.zeros(c))
        self.register_buffer("spread", torch.ones(c))

    def forward(self, x, mask):
        n = mask.sum()
        mean = (x * mask).sum((0, 2)) / n
        dev = (x - mean[:, None]) * mask
        var = dev.square().sum((0, 2)) / n
        with torch.no_grad():
            self.avg.lerp_(mean, self.momentum)
            self.spread.lerp_(var * n / (n - 1), self.momentum)
        return dev * (self.gain / torch.sqrt(var + self.eps))[:, None] + self.offset[:, None] * mask


class Layer(nn.Module):
    def __init__(self, c, kinds):
        super().__init__()
        self.kinds = nn.Parameter(torch.empty(kinds, c))
        self.self_weight = nn.Parameter(torch.empty(()))
        self.widen, self.narrow = nn.Conv1d(c, 2 * c, 1), nn.Conv1d(2 * c, c, 1)
        self.n1, self.n2 = MaskedNorm(2 * c), MaskedNorm(c)

    def forward(self, x, adj, mask):
        """x (b, c, n); adj (kinds, b, n, n) of zeros and ones."""
        gathered = sum(torch.relu(x + k[:, None]) @ a for k, a in zip(self.kinds, adj))
        h = self.widen(torch.addcmul(gathered, self.self_weight, x))
        return self.n2(self.narrow(self.n1(h, mask).relu()), mask)


class DenseGIN(nn.Module):
    def __init__(self, types=6, kinds=3, c=12, depth=3):
        super().__init__()
        self.types = nn.Parameter(torch.empty(c, types))
        self.layers = nn.ModuleList([Layer(c, kinds) for _ in range(depth)])
        self.readers = nn.Parameter(torch.empty(depth + 1, c))
        self.level = nn.Parameter(torch.empty(depth + 1))

    def forward(self, hot, adj, mask):
        x = self.types @ hot
        trail = [x]
        for i, layer in enumerate(self.layers):
            h = layer(x, adj, mask)
            x = x + (h if i + 1 == len(self.layers) else h.relu())
            trail.append(x)
        mean = (torch.stack(trail) * mask).sum(-1) / mask.sum(-1)          # (depth+1, b, c)
        return torch.einsum("lbc,lc->b", mean, self.readers) + self.level.sum()


@torch.no_grad()
def transfer(net, sd):
    net.types.copy_(sd["node_encoder.weight"].T)
    for i, lay in enumerate(net.layers):
        c = f"convs.{i}."
        lay.kinds.copy_(sd[c + "edge_encoder.weight"])
        lay.self_weight.copy_(1 + sd[c + "eps"][0])
        for conv, j in ((lay.widen, 0), (lay.narrow, 3)):
            conv.weight.copy_(sd[f"{c}mlp.{j}.weight"][..., None])
            conv.bias.copy_(sd[f"{c}mlp.{j}.bias"])
        for norm, key in ((lay.n1, c + "mlp.1."), (lay.n2, f"norms.{i}.")):
            norm.gain.copy_(sd[key + "weight"]), norm.offset.copy_(sd[key + "bias"])
            norm.avg.copy_(sd[key + "running_mean"]), norm.spread.copy_(sd[key + "running_var"])
    for j in range(4):
        net.readers[j].copy_(sd[f"pred.{j}.weight"][0])
        net.level[j].copy_(sd[f"pred.{j}.bias"][0])


def graphs(count):
    rng = torch.Generator().manual_seed(710)
    for _ in range(count):
        n = torch.randint(4, 10, (1,), generator=rng).item()
        kind = torch.randint(0, 6, (n,), generator=rng)
        i, j = torch.triu_indices(n, n, 1)
        present = torch.rand(len(i), generator=rng) < 0.4
        i, j = i[present], j[present]
        bond = torch.randint(0, 3, (len(i),), generator=rng)
        yield kind, i, j, bond, 0.1 * kind.sum() - 0.2 * len(i) + 0.1 * bond.eq(1).sum()


def pad(items):
    b, n = len(items), max(len(g[0]) for g in items)
    hot, adj, mask = torch.zeros(b, 6, n), torch.zeros(3, b, n, n), torch.zeros(b, 1, n)
    for k, (kind, i, j, bond, _) in enumerate(items):
        hot[k, kind, torch.arange(len(kind))] = 1
        mask[k, 0, :len(kind)] = 1
        adj[bond, k, i, j] = 1
        adj[bond, k, j, i] = 1
    return hot, adj, mask, torch.stack([g[-1] for g in items])


net = DenseGIN()
transfer(net, torch.load(sys.argv[1]))
everything = list(graphs(30))
opt = torch.optim.Adam(net.parameters(), lr=5e-4, foreach=False)
losses, sizes = [], []
for lo in range(0, 30, 6):
    part = sorted(everything[lo:lo + 6], key=lambda g: -len(g[0]))       # big graphs first
    hot, adj, mask, y = pad(part)
    err = net(hot, adj, mask) - y
    opt.zero_grad()
    err.backward(err.detach().sign() / len(part))
    opt.step()
    sizes.append(mask.sum().item())
    losses.append(err.detach().abs().mean().item())
print(losses)
