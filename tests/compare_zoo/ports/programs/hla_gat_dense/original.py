# SPDX-License-Identifier: Apache-2.0
"""Two-layer GAT by edge lists and scatter softmax; node labels plus link prediction; Adamax,
warm restarts."""
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

N, FEAT, HEADS, HID, CLASSES = 30, 8, 3, 5, 4


def scatter_softmax(score, index, n):
    idx = index[:, None].expand_as(score)
    top = torch.full((n, score.shape[1]), float("-inf"))\
        .scatter_reduce(0, idx, score.detach(), "amax")
    e = (score - top[index]).exp()
    return e / torch.zeros(n, score.shape[1]).index_add(0, index, e)[index]


class GATConv(nn.Module):
    def __init__(self, cin, cout, heads, concat):
        super().__init__()
        self.lin = nn.Linear(cin, heads * cout, bias=False)
        self.att_src = nn.Parameter(torch.randn(1, heads, cout) * 0.5)
        self.att_dst = nn.Parameter(torch.randn(1, heads, cout) * 0.5)
        self.edge_bias = nn.Embedding(3, heads)            # one of three relations
        self.bias = nn.Parameter(torch.zeros(heads * cout if concat else cout))
        self.heads, self.cout, self.concat = heads, cout, concat

    def forward(self, x, edge_index, edge_type):
        src, dst = edge_index  # <- edge_direction
        h = self.lin(x).view(-1, self.heads, self.cout)
        a_src, a_dst = (h * self.att_src).sum(-1), (h * self.att_dst).sum(-1)
        score = F.leaky_relu(a_src[src] + a_dst[dst] + self.edge_bias(edge_type), 0.2)
        alpha = scatter_softmax(score, dst, len(x))  # <- edge_direction
        out = torch.zeros_like(h).index_add(  # <- edge_direction
            0, dst, alpha.unsqueeze(-1) * h[src])  # <- edge_direction
        out = out.flatten(1) if self.concat else out.mean(1)  # <- head_mean
        return out + self.bias


class GAT(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = GATConv(FEAT, HID, HEADS, True)
        self.conv2 = GATConv(HEADS * HID, 6, 2, False)
        self.skip = nn.Linear(FEAT, 6)
        self.cls = nn.Linear(6, CLASSES)
        self.rel = nn.Bilinear(6, 6, 1)

    def forward(self, x, edge_index, edge_type):
        h = F.elu(self.conv1(x, edge_index, edge_type))
        return self.conv2(h, edge_index, edge_type) + self.skip(x)


g = torch.Generator().manual_seed(40)
x = torch.randn(N, FEAT, generator=g)
adj = torch.rand(N, N, generator=g) < 0.12
kind = torch.randint(0, 2, (N, N), generator=g)
label = torch.randint(0, CLASSES, (N,), generator=g)
train_mask = torch.rand(N, generator=g) < 0.6
adj.fill_diagonal_(False)
edge_index = adj.nonzero().t()                             # row: source, column: target
edge_type = kind[edge_index[0], edge_index[1]]
loops = torch.arange(N).repeat(2, 1)
full_index = torch.cat([edge_index, loops], 1)  # <- edge_direction
full_type = torch.cat([edge_type, torch.full((N,), 2)])

torch.manual_seed(0)
model = GAT()
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.Adamax(model.parameters(), lr=1e-2,  # <- decoupled_decay
                                weight_decay=5e-3, eps=1e-6)  # <- decoupled_decay
scheduler = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(  # <- restart
    optimizer, T_0=3, eta_min=1e-3)  # <- restart
losses = []
for epoch in range(5):
    neg = torch.randint(0, N, (2, edge_index.shape[1]), generator=g)
    h = model(x, full_index, full_type)
    node_loss = F.cross_entropy(model.cls(h)[train_mask], label[train_mask])
    pos_score = model.rel(h[edge_index[0]], h[edge_index[1]]).squeeze(1)
    neg_score = model.rel(h[neg[0]], h[neg[1]]).squeeze(1)
    score = torch.cat([pos_score, neg_score])
    truth = torch.cat([torch.ones_like(pos_score), torch.zeros_like(neg_score)])
    loss = node_loss + 0.5 * F.binary_cross_entropy_with_logits(score, truth)  # <- link_mean
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- restart decoupled_decay
    scheduler.step()  # <- restart
    losses.append(loss.item())
print(losses)
