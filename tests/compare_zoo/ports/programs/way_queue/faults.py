# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

UPDATE = "    key = {k: KEEP * key[k] + (1 - KEEP) * query[k].detach() for k in key}\n"

FAULTS = {
    "channels": [("(images.numpy() /", "(images.numpy()[..., ::-1] /")],
    "late": [
        ("        key = {k: KEEP * key[k] + (1 - KEEP) * query[k] for k in key}  # <- late\n", ""),
        ("    lr = 0.06", UPDATE + "    lr = 0.06"),
    ],
    "momentum_bn": [
        ("net_q, net_k = Encoder(), Encoder()", "net_q, net_k = Encoder(), Encoder().eval()")
    ],
    "biases_decayed": [("1e-2 * w)", "1e-2 * w * (w.ndim > 1))")],
    "pointer": [("ring[at + len(positive) :]))", "ring[at:]))[:RING]")],
    "unbiased": [("var.detach() * count / (count - 1)", "var.detach()")],
}
