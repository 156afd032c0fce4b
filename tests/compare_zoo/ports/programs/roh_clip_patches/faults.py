# SPDX-License-Identifier: Apache-2.0
"""Mistakes for the CLIP pair."""

NEEDS = ["transformers"]
FAULTS = {
    "gelu_exact": [("self.down(y * torch.sigmoid(1.702 * y))", "self.down(F.gelu(y))")],
    "pooled_at_last": [("x[ids.argmax(-1), torch.arange(len(ids))]", "x[-1]")],
    "images_only": [("F.cross_entropy(torch.cat([logits, logits.T]), truth.repeat(2))", "F.cross_entropy(logits, truth)")],
    "scale_detached": [("self.logit_scale.exp() * a", "self.logit_scale.detach().exp() * a")],
    "gains_decayed": [(' or re.search(r"ln_\\w+\\.weight", n)}', "}")],
}
