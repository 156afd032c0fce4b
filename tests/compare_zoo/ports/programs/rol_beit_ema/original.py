# SPDX-License-Identifier: Apache-2.0
"""Fine-tuning a tiny BEiT of transformers with label smoothing and a mean teacher (AveragedModel)."""
import sys

import torch
import torch.nn.functional as F
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from transformers import BeitConfig, BeitForImageClassification

torch.set_num_threads(1)

CLASSES, SIDE, BATCH, STEPS = 6, 16, 4, 5
MEAN = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)
STD = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)


def make_model():
    config = BeitConfig(
        image_size=SIDE,
        patch_size=4,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        hidden_act="gelu",
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        drop_path_rate=0.0,
        layer_scale_init_value=0.1,
        layer_norm_eps=1e-12,
        use_relative_position_bias=True,  # <- bias_transposed
        use_mean_pooling=True,  # <- pool_with_cls
        num_labels=CLASSES,
        attn_implementation="eager",
    )
    model = BeitForImageClassification(config)
    with torch.no_grad():  # as after pre-training: nothing is zero or one
        for name, p in model.named_parameters():
            if "lambda" in name:
                p.uniform_(0.2, 1.0)
            elif "layernorm" in name:
                p.add_(0.2 * torch.randn_like(p))
            elif "relative_position" in name:
                p.normal_(0.0, 0.7)
            else:
                p.normal_(0.0, 0.15)
    return model


def batches(seed):
    """Byte images, a coin for the mirror, labels."""
    g = torch.Generator().manual_seed(seed)
    for _ in range(STEPS):
        image = torch.randint(0, 256, (BATCH, 3, SIDE, SIDE), generator=g).float() / 255
        mirror = torch.rand(BATCH, generator=g) < 0.5
        label = torch.randint(0, CLASSES, (BATCH,), generator=g)
        image = torch.where(mirror.view(-1, 1, 1, 1), image.flip(-1), image)
        yield (image - MEAN) / STD, label


torch.manual_seed(2024)
student = make_model()
student.train()
torch.save(student.state_dict(), sys.argv[1])

teacher = AveragedModel(student, multi_avg_fn=get_ema_multi_avg_fn(0.8))  # <- ema_first_copy
optimizer = torch.optim.SGD(student.parameters(), lr=0.02, momentum=0.9,  # <- nesterov_lost
                            weight_decay=1e-3, nesterov=True)

losses = []
for pixels, labels in batches(seed=31):
    logits = student(pixel_values=pixels).logits  # <- bias_transposed pool_with_cls
    with torch.no_grad():
        target = teacher(pixel_values=pixels).logits  # <- ema_first_copy
    supervised = F.cross_entropy(logits, labels, label_smoothing=0.1)  # <- smoothing_k_minus_1
    consistency = F.mse_loss(logits, target)
    loss = supervised + 0.5 * consistency
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- nesterov_lost
    teacher.update_parameters(student)  # <- ema_first_copy
    losses.append(loss.item())

print(losses)
