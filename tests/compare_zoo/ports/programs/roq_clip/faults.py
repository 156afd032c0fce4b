# SPDX-License-Identifier: Apache-2.0
"""Faults of the CLIP port."""

NEEDS = ["transformers"]
FAULTS = {
    "quick_gelu": [("self.act = QuickGELU()", "self.act = nn.GELU()")],
    "eos_pool": [("clip.text(ids[pick], ends[pick])", "clip.text(ids[pick], ids[pick].argmax(1))")],
    "pixel_stats": [("[0.48145466, 0.4578275, 0.40821073]", "[0.485, 0.456, 0.406]"),
                    ("[0.26862954, 0.26130258, 0.27577711]", "[0.229, 0.224, 0.225]")],
    "one_sided": [("loss = 0.5 * (by_image + by_text)", "loss = by_image")],
    "coupled_decay": [("            p.mul_(1 - 2e-3 * 0.2)", "            p.grad.add_(p, alpha=0.2)")],
}
