# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of flow."""

FAULTS = {
    "unit": [("lower.fill_diagonal_(1.0)", 'lower = get("invconv.L").tril()')],
    "area": [("total = total + positions * self.volume", "total = total + self.volume")],
    "gate": [("log_gate = -torch.log1p(torch.exp(-(raw + 2.0)))",
              "log_gate = -torch.log1p(torch.exp(-raw))")],
    "split": [("mean, log_sd = stats[..., :2], stats[..., 2:]",
               "mean, log_sd = stats[..., ::2], stats[..., 1::2]")],
    "levels": [("bits = nats / np.log(2) + 5", "bits = nats / np.log(2) + 8")],
}
