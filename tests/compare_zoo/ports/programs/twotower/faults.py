# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "bag": [("(table[ids] * there).sum(1) / there.sum(1)", "(table[ids] * there).mean(1)")],
    "crossed": [('dense(v, f"cross{n}", x) + x', 'dense(v, f"cross{n}", x) + first')],
    "unit": [
        (
            'l2_normalize(dense(v, "query2", x), axis=-1)',
            'l2_normalize(dense(v, "query2", x), axis=0)',
        )
    ],
    "table": [('v["brand/table"][maker]', 'v["category/table"][maker]')],
    "active": [('dense(v, "candidate1", x, torch.relu)', 'dense(v, "candidate1", x)')],
    "warm": [("queries, candidates) / 0.2", "queries, candidates) * 0.2")],
    "corrected": [("scores - probability.log()", "scores + probability.log()")],
    "hits": [("scores = scores + duplicates * LOWEST", "scores = scores + duplicates")],
    "seen": [
        (
            "self.when = self.when.index_fill(0, items, step)",
            "self.when = self.when.index_fill(0, items, 0)",
        )
    ],
    "accumulator": [("torch.full_like(w, 0.1)", "torch.full_like(w, 0.0)")],
}
