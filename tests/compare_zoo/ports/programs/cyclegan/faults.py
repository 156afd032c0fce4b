# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "upward": [('(2, 3, 0, 1) if layer == "up"', '(3, 2, 0, 1) if layer == "up"')],
    "reflect": [("[1, *range(n), n - 2]", "[0, *range(n), n - 1]")],
    "instance": [("dim=(1, 2), correction=0", "dim=(0, 1, 2), correction=0")],
    "eps": [("epsilon=1e-5", "epsilon=1e-3")],
    "slope": [("alpha=0.2", "alpha=0.3")],
    "identity": [
        (
            "absolute(generator(g, y), y) + absolute(generator(f, x), x)",
            "absolute(generator(g, x), x) + absolute(generator(f, y), y)",
        )
    ],
    "half": [("0.5 * (real_loss + fake_loss)", "real_loss + fake_loss")],
    "betas": [("beta_1=0.5", "beta_1=0.9")],
}
