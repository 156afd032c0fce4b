# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

OF = "bert"
FAULTS = {
    "padding": [("extended = (1.0 - extended)", "extended = extended")],
    "types": [
        (
            "hidden = self.embeddings(input_ids, token_type_ids)",
            "hidden = self.embeddings(input_ids, 1 - token_type_ids)",
        )
    ],
    "offset": [
        (
            "self.position_embeddings(torch.arange(LENGTH))",
            "self.position_embeddings(torch.arange(LENGTH).clamp(min=1) - 1)",
        )
    ],
    "gelu": [
        (
            "functional.gelu(self.intermediate(attended))",
            'functional.gelu(self.intermediate(attended), approximate="tanh")',
        )
    ],
    "ignored": [
        ("ignore_index=-100", "ignore_index=-1"),
        ("labels.view(-1)", "labels.clamp(min=-1).view(-1).where(labels.view(-1) != -100, 1)"),
    ],
    "decay": [
        ('"weight_decay": 0.0}', '"weight_decay": 0.1}'),
    ],
}
