# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "std": [("(log_variance / 2).exp()", "log_variance.exp()")],
    "mean": [('reduction="none").sum()', 'reduction="none").mean()')],
    "kl": [("kl_divergence(posterior, prior)", "kl_divergence(prior, posterior)")],
    "sign": [("loss = error + kl", "loss = error - kl")],
    "halved": [("posterior, prior).sum()", "posterior, prior).mean(0).sum()")],
}
