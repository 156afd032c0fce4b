# SPDX-License-Identifier: Apache-2.0
"""Faults of the recommender on segment sums."""

FAULTS = {
    "pair_order": [("pair_rows = pair_rows[from_lower_order(FIELDS + 1)]", "pair_rows = pair_rows.clone()")],
    "segment_edge": [("searchsorted(ends, place, right=True)", "searchsorted(ends, place)")],
    "dense_log": [("torch.log1p(counts.float())", "torch.log(counts.float().clamp(min=1))")],
    "row_weight": [("torch.dot(cost, importance) / importance.sum()",
                    "torch.dot(cost, importance) / len(cost)")],
    "accumulator_start": [("rate, start=0.1)", "rate, start=0.0)")],
}
