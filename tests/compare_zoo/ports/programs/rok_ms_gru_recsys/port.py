# SPDX-License-Identifier: Apache-2.0
"""The click model on MindSpore: an own GRU with one cell per gate, masked by length."""
import sys

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops

ms.set_context(mode=ms.PYNATIVE_MODE, device_target="CPU")


class GateGRU(nn.Cell):
    """Runs the whole history; a finished row keeps its state."""

    def __init__(self, n_in, n_hidden):
        super().__init__()
        self.n_hidden = n_hidden
        self.xr, self.hr = nn.Dense(n_in, n_hidden), nn.Dense(n_hidden, n_hidden)
        self.xz, self.hz = nn.Dense(n_in, n_hidden), nn.Dense(n_hidden, n_hidden)
        self.xn, self.hn = nn.Dense(n_in, n_hidden), nn.Dense(n_hidden, n_hidden)

    def construct(self, seq, length):
        h = ops.zeros((seq.shape[0], self.n_hidden), ms.float32)
        for t in range(seq.shape[1]):
            x = seq[:, t]
            r = ops.sigmoid(self.xr(x) + self.hr(h))  # <- gate_order
            z = ops.sigmoid(self.xz(x) + self.hz(h))  # <- gate_order
            n = ops.tanh(self.xn(x) + r * self.hn(h))  # <- reset_before
            new = (1 - z) * n + z * h
            alive = (length > t).astype(ms.float32).expand_dims(1)  # <- last_step_not_masked
            h = alive * new + (1 - alive) * h  # <- last_step_not_masked
        return h


class CTR(nn.Cell):
    def __init__(self):
        super().__init__()
        self.users = nn.Embedding(20, 8)
        self.items = nn.Embedding(30, 8)
        self.tags = nn.Embedding(12, 8)
        self.history = GateGRU(8, 12)
        self.tower = nn.SequentialCell([nn.Dense(36, 16, activation="relu"), nn.Dense(16, 1)])

    def bag(self, ids):
        keep = (ids != 0).astype(ms.float32).expand_dims(-1)
        total = (self.tags(ids) * keep).sum(axis=1)
        return total / keep.sum(axis=1)  # <- tags_mean_over_padding

    def construct(self, user, item, tags, hist, length):
        h = self.history(self.items(hist), length)
        feats = ops.concat((self.users(user), self.items(item), self.bag(tags), h), axis=1)
        return self.tower(feats)


def read_checkpoint(net, path):
    w = dict(np.load(path))
    renamed = {f"{new}.embedding_table": w[f"{old}.weight"] for new, old in
               [("users", "user_emb"), ("items", "item_emb"), ("tags", "tag_emb")]}
    for side, key in (("x", "ih"), ("h", "hh")):
        for kind in ("weight", "bias"):
            blocks = np.split(w[f"gru.{kind}_{key}_l0"], 3, axis=0)
            for gate, block in zip("rzn", blocks):  # <- gate_order
                renamed[f"history.{side}{gate}.{kind}"] = block
    for i in (0, 1):
        for kind in ("weight", "bias"):
            renamed[f"tower.{i}.{kind}"] = w[f"fc{i + 1}.{kind}"]
    for p in net.get_parameters():
        p.set_data(Tensor(renamed.pop(p.name)))
    assert not renamed, list(renamed)


def sample(rng, n=16):
    out = {"user": rng.randint(0, 20, size=n), "item": rng.randint(0, 30, size=n)}
    tags = rng.randint(1, 12, size=(n, 4))
    count = rng.randint(1, 5, size=n)
    out["tags"] = np.where(np.arange(4) < count[:, None], tags, 0)
    out["hist"] = rng.randint(1, 30, size=(n, 6))
    out["length"] = rng.randint(1, 7, size=n)
    inputs = [Tensor(v.astype(np.int32)) for v in out.values()]
    return inputs, Tensor((rng.rand(n) < 0.3).astype(np.float32)[:, None])


model = CTR()
read_checkpoint(model, sys.argv[1])
bce = nn.BCEWithLogitsLoss()
optim = nn.Adagrad(model.trainable_params(), accum=1e-3, learning_rate=0.05)  # <- accumulator_default
step = ms.value_and_grad(lambda inputs, y: bce(model(*inputs), y), None, model.trainable_params())

generator = np.random.RandomState(77)
losses = []
for _ in range(4):
    inputs, click = sample(generator)
    loss, grads = step(inputs, click)
    optim(grads)  # <- accumulator_default
    losses.append(loss.item())
print(losses)
