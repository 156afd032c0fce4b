# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of tabular."""

FAULTS = {
    "impute": [("values = (values - self.mean) / self.std",
                "values = (values.nan_to_num(0.0) - self.mean) / self.std")],
    "unknown": [("rows = self.offset + (codes + 1) * known",
                 "rows = self.offset + (codes + 1).clamp(min=0).minimum(self.limit)")],
    "activation": [("z * torch.tanh(torch.log1p(z.exp()))", "z * torch.sigmoid(z)")],
    "temperature": [("self.temperature = 1 / beta", "self.temperature = beta")],
    "binweight": [("gap.sum() / count.sum()", "(gap / np.maximum(count, 1)).sum() / (count > 0).sum()")],
}
