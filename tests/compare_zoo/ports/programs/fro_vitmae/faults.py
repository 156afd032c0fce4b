# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

NEEDS = ["transformers"]
FAULTS = {
    "order": [("[:, :KEEP].sort(1).values", "[:, :KEEP]")],
    "pixels": [
        ('moved(old[f"decoder.decoder_pred.{kind}"])', 'old[f"decoder.decoder_pred.{kind}"]')
    ],
    "variance": [
        (
            "torch.var_mean(patches, dim=-1, keepdim=True)",
            "torch.var_mean(patches, dim=-1, keepdim=True, correction=0)",
        )
    ],
    "hidden": [("F.mse_loss(painted[hidden], target[hidden])", "F.mse_loss(painted, target)")],
    "places": [
        (
            'self.register_buffer("places", torch.empty(SIDE * SIDE + 1, DIM))',
            "self.places = nn.Parameter(torch.empty(SIDE * SIDE + 1, DIM))",
        )
    ],
}
