# SPDX-License-Identifier: Apache-2.0
"""JAX port of the molecule network: padded graphs, segment sums, rounds in a fori_loop, Adam by hand."""
import sys
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import opscope

G, K_ATOM, K_BOND, D, ROUNDS = 6, 7, 3, 16, 3
MAX_NODES, MAX_EDGES = 56, 96
LR, B1, B2, EPS, L2 = 6e-3, 0.9, 0.999, 1e-8, 1e-3

total = partial(jax.ops.segment_sum, indices_are_sorted=False)


def load(path):
    with np.load(path) as w:
        first, ih, hh = w["message.0.weight"].T, w["gru.weight_ih"], w["gru.weight_hh"]
        bi, bh = w["gru.bias_ih"], w["gru.bias_hh"]
        gate = lambda n: dict(x=ih[n * D:(n + 1) * D].T, h=hh[n * D:(n + 1) * D].T,
                              bx=bi[n * D:(n + 1) * D], bh=bh[n * D:(n + 1) * D])
        tree = {
            "atom": w["atom.weight"], "bond": w["bond.weight"],
            # concat then matmul becomes a matmul per part
            "msg": {"from": first[:D], "to": first[D:2 * D], "edge": first[2 * D:], "b": w["message.0.bias"],
                    "w": w["message.2.weight"].T, "c": w["message.2.bias"]},
            "reset": gate(0), "update": gate(1), "new": gate(2),
            "out": {"last": w["readout.0.weight"].T[:D], "first": w["readout.0.weight"].T[D:],
                    "b": w["readout.0.bias"], "w": w["readout.2.weight"][0], "c": w["readout.2.bias"]},
        }
        return jax.tree.map(jnp.array, tree)


def forward(p, graph):
    h0 = p["atom"][graph["atoms"]]
    edge = p["bond"][graph["bonds"]] @ p["msg"]["edge"] + p["msg"]["b"]

    def affine(q, x, h):
        return x @ q["x"] + q["bx"], h @ q["h"] + q["bh"]

    def one_round(_, h):
        pre = (h @ p["msg"]["from"])[graph["src"]] + (h @ p["msg"]["to"])[graph["dst"]] + edge
        m = jnp.maximum(pre, 0) @ p["msg"]["w"] + p["msg"]["c"]
        x = total(m, graph["dst"], MAX_NODES)
        r = jax.nn.sigmoid(sum(affine(p["reset"], x, h)))
        z = jax.nn.sigmoid(sum(affine(p["update"], x, h)))
        a, b = affine(p["new"], x, h)
        return h + (1 - z) * (jnp.tanh(a + r * b) - h)

    h = jax.lax.fori_loop(0, ROUNDS, one_round, h0)
    size = total(jnp.ones(MAX_NODES), graph["graph"], G + 1)[:G, None]
    last, first = (total(x, graph["graph"], G + 1)[:G] / size for x in (h, h0))
    o = p["out"]
    return jnp.maximum(last @ o["last"] + first @ o["first"] + o["b"], 0) @ o["w"] + o["c"]


def loss_fn(p, graph, target):
    return jnp.mean(jnp.square(forward(p, graph) - target))


@jax.jit
def step(params, opt_state, graph, target):
    loss, grads = jax.value_and_grad(loss_fn)(params, graph, target)
    t = opt_state["t"] + 1
    grads = jax.tree.map(lambda g, w: g + L2 * w, grads, params)
    mu = jax.tree.map(lambda m, g: m + (1 - B1) * (g - m), opt_state["mu"], grads)
    nu = jax.tree.map(lambda v, g: v + (1 - B2) * (g * g - v), opt_state["nu"], grads)
    rate, root = LR / (1 - B1 ** t), jnp.sqrt(1 - B2 ** t)
    params = jax.tree.map(lambda w, m, v: w - rate * m / (jnp.sqrt(v) / root + EPS), params, mu, nu)
    return params, {"t": t, "mu": mu, "nu": nu}, loss


step = opscope.watch_jax(step, sys.argv[2])


def sample(rs):
    nodes, edges, target = [], [], []
    for g in range(G):
        n, offset = rs.randint(4, 9), len(nodes)
        kinds = rs.randint(0, K_ATOM, size=n)
        for i in range(1, n):
            parent = rs.randint(0, i)
            bond = rs.randint(0, K_BOND)
            edges += [(offset + i, offset + parent, bond), (offset + parent, offset + i, bond)]
        nodes += [(k, g) for k in kinds]
        target.append(kinds.mean() / 3 - 1 + 0.1 * rs.randn())
    # pad: spare nodes go to graph G, spare edges loop on the last spare node
    nodes += [(0, G)] * (MAX_NODES - len(nodes))
    edges += [(MAX_NODES - 1, MAX_NODES - 1, 0)] * (MAX_EDGES - len(edges))
    atoms, graph = np.array(nodes, np.int32).T
    src, dst, bonds = np.array(sorted(edges, key=lambda e: e[1]), np.int32).T
    return dict(atoms=atoms, graph=graph, src=src, dst=dst, bonds=bonds), np.array(target, np.float32)


params = load(sys.argv[1])
zeros = jax.tree.map(jnp.zeros_like, params)
opt_state = {"t": jnp.zeros((), jnp.int32), "mu": zeros, "nu": zeros}
rs = np.random.RandomState(12)
losses = []
for _ in range(4):
    params, opt_state, loss = step(params, opt_state, *sample(rs))
    losses.append(float(loss))
print(losses)
