# SPDX-License-Identifier: Apache-2.0
"""The GCN on a dense propagation matrix, in the manner of the first TensorFlow code: (in, out) weights, L2 in the loss."""
import sys
from types import SimpleNamespace

import torch

torch.set_num_threads(1)

NODES, FEATURES, CLASSES = 60, 20, 5
WEIGHT_DECAY, RATE, EPOCHS, FREEZE_FROM = 0.02, 0.02, 5, 3


def load_data():
    g = torch.Generator().manual_seed(17)
    adj = torch.rand(NODES, NODES, generator=g).lt(0.07).float()
    adj = adj * (1 - torch.eye(NODES))
    words = torch.bernoulli(torch.rand(NODES, FEATURES, generator=g), generator=g) + 0.1
    words = torch.diag(1 / words.sum(1)) @ words
    labels = torch.randint(0, CLASSES, (NODES,), generator=g)
    mask = torch.rand(NODES, generator=g) < 0.4
    return adj, words, torch.nn.functional.one_hot(labels, CLASSES).float(), mask.float()


def preprocess_adj(adj):
    """adj[i, j] is an edge from i to j; row j of what is returned gathers what comes in to j."""
    incoming = adj.t()  # <- edge_direction
    with_loops = incoming + torch.eye(NODES)  # <- degree_without_loops
    degree = with_loops.sum(1)  # <- degree_without_loops
    half = torch.diag(degree.clamp(min=1.0).rsqrt())
    return half @ with_loops @ half


class BatchNorm:
    """The moving averages keep `momentum` of the old, as Keras has it."""

    def __init__(self, gamma, beta, moving_mean, moving_var, momentum=0.9):  # <- bn_momentum
        self.gamma, self.beta = gamma, beta
        self.moving_mean, self.moving_var, self.momentum = moving_mean, moving_var, momentum

    def __call__(self, h, training):
        if training:
            mean, var = h.mean(0), h.var(0, unbiased=False)
            self.moving_mean = self.keep(self.moving_mean, mean)  # <- bn_momentum
            self.moving_var = self.keep(self.moving_var, var * len(h) / (len(h) - 1))  # <- bn_momentum
        else:
            mean, var = self.moving_mean, self.moving_var
        return self.gamma * (h - mean) / torch.sqrt(var + 1e-5) + self.beta

    def keep(self, old, new):
        return self.momentum * old + (1 - self.momentum) * new.detach()  # <- bn_momentum


class DenseGCN:
    def __init__(self, path):
        sd = torch.load(path)
        leaf = lambda name: sd[name].t().contiguous().clone().requires_grad_() if sd[name].dim() == 2 else sd[name].clone().requires_grad_()
        self.vars = SimpleNamespace(w0=leaf("conv1.lin.weight"), w1=leaf("conv2.lin.weight"), b1=leaf("conv2.bias"),
                                    gamma=leaf("bn1.weight"), beta=leaf("bn1.bias"))
        self.norm = BatchNorm(self.vars.gamma, self.vars.beta, sd["bn1.running_mean"].clone(), sd["bn1.running_var"].clone())
        self.decayed = [self.vars.w0]  # <- decay_on_all_layers

    def trainable(self):
        return list(vars(self.vars).values())

    def logits(self, support, words, training):
        hidden = (support @ words) @ self.vars.w0
        hidden = torch.clamp_min(self.norm(hidden, training), 0)
        return (support @ hidden) @ self.vars.w1 + self.vars.b1

    def l2(self):
        return sum(WEIGHT_DECAY * 0.5 * w.square().sum() for w in self.decayed)  # <- decay_on_all_layers


def masked_cross_entropy(logits, onehot, mask):
    rows = torch.logsumexp(logits, 1) - (logits * onehot).sum(1)
    weight = mask / mask.mean()  # <- loss_over_all_nodes
    return (rows * weight).mean()  # <- loss_over_all_nodes


class Adam:
    def __init__(self, variables, rate):
        self.variables, self.rate, self.t = variables, rate, 0
        self.slots = [[torch.zeros_like(v), torch.zeros_like(v)] for v in variables]

    def minimize(self, objective):
        self.t += 1
        grads = torch.autograd.grad(objective, self.variables)
        with torch.no_grad():
            for v, g, slot in zip(self.variables, grads, self.slots):
                slot[0] = 0.9 * slot[0] + 0.1 * g
                slot[1] = 0.999 * slot[1] + 0.001 * g * g
                first = slot[0] / (1 - 0.9 ** self.t)
                second = slot[1] / (1 - 0.999 ** self.t)
                v -= self.rate * first / (second.sqrt() + 1e-8)


adj, words, onehot, mask = load_data()
support = preprocess_adj(adj)
gcn = DenseGCN(sys.argv[1])
opt = Adam(gcn.trainable(), RATE)

losses = []
for epoch in range(EPOCHS):
    logits = gcn.logits(support, words, training=epoch < FREEZE_FROM)
    data_loss = masked_cross_entropy(logits, onehot, mask)
    opt.minimize(data_loss + gcn.l2())  # <- decay_on_all_layers
    losses.append(data_loss.item())
print(losses)
