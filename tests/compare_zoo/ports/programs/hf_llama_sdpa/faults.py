# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

NEEDS = ["transformers"]
FAULTS = {
    "eps": [("rms_norm_eps=1e-5", "rms_norm_eps=1e-3")],
    "theta": [('"rope_theta": 10000.0', '"rope_theta": 500000.0')],
    "activation": [('attn_implementation="sdpa"', 'attn_implementation="sdpa", hidden_act="gelu"')],
    "swapped": [
        (
            "model.load_state_dict(torch.load(sys.argv[1]))",
            'model.load_state_dict({n.replace("gate_proj", "x_proj").replace("up_proj", "gate_proj").replace("x_proj", "up_proj"): v for n, v in torch.load(sys.argv[1]).items()})',
        )
    ],
    "mask": [("input_ids=ids, labels", "input_ids=ids, attention_mask=(ids != 0).long(), labels")],
    "rate": [("lr=1e-3", "lr=1.02e-3")],
}
