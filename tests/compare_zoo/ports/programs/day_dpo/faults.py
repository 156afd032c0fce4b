# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "beta": [("F.softplus(-beta * (better - worse))", "F.softplus(worse - better)")],
    "shift": [
        ("model(ids)[:, :-1]", "model(ids)"),
        ("target = ids[:, 1:]", "target = ids"),
        ("counted[:, 1:]", "counted"),
    ],
    "padding": [
        (
            "(at >= N_PROMPT) & (at < end)",
            "np.broadcast_to(at >= N_PROMPT, end.shape[:1] + at.shape)",
        )
    ],
    "average": [(".sum(1)  #", ".sum(1) / counted[:, 1:].sum(1)  #")],
    "reference": [("log_prob(frozen, ids", "log_prob(model, ids")],
    "post_norm": [
        (
            "return x + self.down(self.up(self.norm_b(x)).relu())",
            "return self.norm_b(x + self.down(self.up(x).relu()))",
        )
    ],
}
