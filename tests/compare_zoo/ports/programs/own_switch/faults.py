# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "ungated": [("combine = probs[..., None] * slots", "combine = slots")],
    "full": [("2, 3, 8, 7", "2, 3, 8, 6")],
    "balance": [("(taken.mean(1) * probs.mean(1))", "(taken.mean(1) * probs.detach().mean(1))")],
    "ordered": [("torch.full((T, T), -1e9).triu(1)", "torch.full((T, T), -1e9).triu(2)")],
    "halved": [("(loss, list(model.parameters()))", "(2 * loss, list(model.parameters()))")],
}
