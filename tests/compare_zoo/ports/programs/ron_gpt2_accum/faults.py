# SPDX-License-Identifier: Apache-2.0
"""Five faults of the accumulating GPT-2 port."""

NEEDS = ["transformers"]
FAULTS = {
    "position_ids": [(", position_ids=place.clamp(min=0))", ")")],
    "token_weight": [("self.summed_loss(ids, place, scored) / tokens", "self.summed_loss(ids, place, scored) / scored.sum() / len(micros)")],
    "prompt_labels": [("scored = place >= asked[:, None]", "scored = place >= 1 + 0 * asked[:, None]")],
    "zero_in_micro": [
        ("        self.optim.zero_grad()  # <- zero_in_micro\n", ""),
        ("        for ids, place, scored in micros:\n", "        for ids, place, scored in micros:\n            self.optim.zero_grad()  # <- zero_in_micro\n"),
    ],
    "schedule_shift": [("self.updates = 0", "self.updates = 1")],
}
