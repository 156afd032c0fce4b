# SPDX-License-Identifier: Apache-2.0
"""MindSpore port of the sine forecaster: hand-unrolled cells on [x, h], time first, carried state as parameters."""
import sys

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops

ms.set_context(mode=ms.PYNATIVE_MODE, device_target="CPU")

N, C, H, WINDOW, ROUNDS = 6, 3, 12, 6, 4


class Cell(nn.Cell):
    """One LSTM cell; a single kernel on [x, h], gates ordered i, f, o, g."""

    def __init__(self, n_in):
        super().__init__()
        self.kernel = Parameter(ops.zeros((n_in + H, 4 * H), ms.float32))
        self.bias = Parameter(ops.zeros(4 * H, ms.float32))

    def construct(self, x, h, c):
        z = ops.matmul(ops.cat((x, h), -1), self.kernel) + self.bias
        gates, new = ops.split(z, [3 * H, H], -1)
        i, f, o = ops.split(ops.sigmoid(gates), H, -1)
        c = f * c + i * ops.tanh(new)
        return o * ops.tanh(c), c


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.low, self.high = Cell(C), Cell(H)
        self.ln = nn.LayerNorm((H,), epsilon=1e-5)
        self.out = nn.Dense(H, C)

    def construct(self, xs, carry):
        h0, c0, h1, c1 = carry
        steps = []
        for x in ops.unbind(xs):
            h0, c0 = self.low(x, h0, c0)
            h1, c1 = self.high(h0, h1, c1)
            steps.append(h1)
        return xs + self.out(self.ln(ops.stack(steps))), (h0, c0, h1, c1)


def load(net, path):
    w = np.load(path)

    def reorder(a):
        i, f, g, o = np.split(a, 4)
        return np.concatenate([i, f, o, g])

    for layer, cell in enumerate((net.low, net.high)):
        both = np.concatenate([w[f"lstm.weight_ih_l{layer}"], w[f"lstm.weight_hh_l{layer}"]], axis=1)
        cell.kernel.set_data(Tensor(reorder(both).T.copy()))
        # torch keeps two biases, each of which takes a full step: the sum moves twice as far
        cell.bias.set_data(Tensor(reorder(w[f"lstm.bias_ih_l{layer}"] + w[f"lstm.bias_hh_l{layer}"])))
    net.ln.gamma.set_data(Tensor(w["norm.weight"]))
    net.ln.beta.set_data(Tensor(w["norm.bias"]))
    net.out.weight.set_data(Tensor(w["head.weight"]))
    net.out.bias.set_data(Tensor(w["head.bias"]))


def sines(rs, n, length):
    freq = rs.uniform(0.1, 0.6, size=(n, 1, C))
    phase = rs.uniform(0, 2 * np.pi, size=(n, 1, C))
    clean = np.sin(freq * np.arange(length).reshape(1, -1, 1) + phase)
    return Tensor((clean + 0.05 * rs.randn(n, length, C)).astype(np.float32).transpose(1, 0, 2))


def zeros(n):
    return tuple(ops.zeros((n, H), ms.float32) for _ in range(4))


rs = np.random.RandomState(101)
train, valid = sines(rs, N, WINDOW * ROUNDS + 1), sines(rs, 4, 8)
net = Net()
load(net, sys.argv[1])
doubled = [net.low.bias, net.high.bias]
single = [p for p in net.trainable_params() if not any(p is q for q in doubled)]
schedule = [0.2, 0.2, 0.1, 0.1]
optimizer = nn.SGD([{"params": single, "lr": schedule}, {"params": doubled, "lr": [2 * lr for lr in schedule]}],
                   learning_rate=0.2, momentum=0.9, nesterov=True)


def huber(pred, target, beta=0.5):
    d = ops.abs(pred - target)
    return ops.where(d < beta, 0.5 * d * d / beta, d - 0.5 * beta).mean()


def forward(x, y, carry):
    pred, carry = net(x, carry)
    return huber(pred, y), carry


grad_fn = ms.value_and_grad(forward, None, optimizer.parameters, has_aux=True)
losses, best, carry = [], None, zeros(N)
for r in range(ROUNDS):
    lo = r * WINDOW
    (loss, carry), grads = grad_fn(train[lo:lo + WINDOW], train[lo + 1:lo + WINDOW + 1], carry)
    carry = tuple(ops.stop_gradient(s) for s in carry)
    optimizer(tuple(ops.clamp(g, -0.05, 0.05) for g in grads))
    if r % 2:
        score = float(forward(valid[:-1], valid[1:], zeros(4))[0].asnumpy())
        best = score if best is None else min(best, score)
    losses.append(float(loss.asnumpy()))
print(losses)
