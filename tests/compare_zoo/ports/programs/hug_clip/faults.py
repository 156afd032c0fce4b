# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

NEEDS = ["transformers"]
FAULTS = {
    "gelu": [('    "hidden_act": "gelu",\n', "")],
    "eot": [("    eos_token_id=39,\n", "    eos_token_id=0,\n")],
    "projection": [('old["visual.proj"].t()', 'old["visual.proj"]')],
    "pixels": [
        ("[0.48145466, 0.4578275, 0.40821073]", "[0.485, 0.456, 0.406]"),
        ("[0.26862954, 0.26130258, 0.27577711]", "[0.229, 0.224, 0.225]"),
    ],
    "clamped": [(".clamp_(math.log(5), math.log(100))", ".clamp_(0, math.log(100))")],
}
