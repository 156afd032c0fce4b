# SPDX-License-Identifier: Apache-2.0
"""Features that are doubled in place behind a dropout that is off, compiled: the write is lost."""

import torch


@torch.compile
def doubled(features):
    kept = torch.nn.functional.dropout(features, 0.5, False)
    kept += kept
    return kept


features = torch.ones(2, 3)
for _ in range(2):
    doubled(features)
print(float(features.sum()))
