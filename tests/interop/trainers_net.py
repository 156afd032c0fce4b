# SPDX-License-Identifier: Apache-2.0
"""One small training by the trainer that the first argument names, told by the second what its data
is like and by the third what to do on an overflow; the fourth is where to record, or empty for
nothing.

faulty: batch 3 of 6 is so large that the model's square leaves float32. guarded: an exponential
overflows in every batch, and a where takes another value in its place. Prints the number of batches
that were trained with, then the sum of the parameters as a hexadecimal float.
"""

import sys
import tempfile

import torch

trainer, data, on_overflow, place = sys.argv[1:]
BATCHES, WRONG = 6, 3
torch.manual_seed(0)


def batches():
    numbers = torch.Generator().manual_seed(1)
    for number in range(BATCHES):
        x = torch.randn(4, 8, generator=numbers)
        yield (x * 1e25 if data == "faulty" and number == WRONG else x), torch.zeros(4, 1)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(8, 8)
        self.last = torch.nn.Linear(8, 1)

    def forward(self, x, labels=None):
        h = self.first(x)
        if data == "guarded":
            grown = torch.exp((h.detach() + 10) * 50)
            h = h + torch.where(grown > 1e9, torch.zeros_like(grown), grown)
        out = self.last(h * h)
        if labels is None:
            return out
        return {"loss": ((out - labels) ** 2).mean(), "logits": out}


net = Net()
options = {"on_overflow": on_overflow, "values": "none"}


def by_transformers():
    from transformers import Trainer, TrainerCallback, TrainingArguments

    from opscope.integrations.transformers import OpscopeCallback

    rows = [{"x": x, "labels": y} for xs, ys in batches() for x, y in zip(xs, ys, strict=True)]
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=4,
        max_steps=BATCHES,
        report_to=[],
        use_cpu=True,
        save_strategy="no",
        dataloader_pin_memory=False,
        train_sampling_strategy="sequential",
    )
    callbacks = [OpscopeCallback(place, **options)] if place else []
    Count = type("Count", (TrainerCallback,), {})
    trainer = Trainer(net, arguments, train_dataset=rows, callbacks=[*callbacks, Count])
    trainer.train()
    return trainer.state.global_step


def by_lightning():
    import lightning

    from opscope.integrations.lightning import OpscopeCallback

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = net

        def training_step(self, batch):
            return self.net(*batch)["loss"]

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=1e-3)

    trainer = lightning.Trainer(
        max_epochs=1,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tempfile.mkdtemp(),
        callbacks=[OpscopeCallback(place, **options)] if place else [],
    )
    trainer.fit(Module(), torch.utils.data.DataLoader(list(batches()), batch_size=None))
    return trainer.global_step


def by_keras():
    import os

    os.environ["KERAS_BACKEND"] = "torch"
    import keras

    from opscope.integrations.keras import OpscopeCallback

    class Layer(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.first = keras.layers.Dense(8)
            self.last = keras.layers.Dense(1)

        def call(self, x):
            h = self.first(x)
            if data == "guarded":
                grown = torch.exp((h.detach() + 10) * 50)
                h = h + torch.where(grown > 1e9, torch.zeros_like(grown), grown)
            return self.last(h * h)

    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((8,)), Layer()])
    model.compile(optimizer=keras.optimizers.SGD(1e-3), loss="mse", jit_compile=False)
    seen = []
    count = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: seen.append(batch)
    )
    x, y = (torch.cat(part).numpy() for part in zip(*batches(), strict=True))
    callbacks = [OpscopeCallback(place, **options)] if place else []
    model.fit(x, y, batch_size=4, shuffle=False, verbose=0, callbacks=[*callbacks, count])
    net.parameters = lambda: [weight.value for weight in model.trainable_weights]
    return len(seen)


def by_ignite():
    from ignite.engine import Engine

    from opscope.integrations.ignite import watch

    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)

    def step(engine, batch):
        optimizer.zero_grad()
        net(*batch)["loss"].backward()
        optimizer.step()

    engine = Engine(step)
    if place:
        watch(engine, place, **options)
    return engine.run(list(batches())).iteration


def by_accelerate():
    from accelerate import Accelerator

    from opscope.integrations.accelerate import OpscopeTracker

    tracker = OpscopeTracker(place, values="none") if place else None
    accelerator = Accelerator(log_with=tracker, cpu=True)
    model, optimizer = accelerator.prepare(net, torch.optim.SGD(net.parameters(), lr=1e-3))
    accelerator.init_trackers("run", {"secret": 1})
    for number, batch in enumerate(batches()):
        optimizer.zero_grad()
        loss = model(*batch)["loss"]
        accelerator.backward(loss)
        optimizer.step()
        accelerator.log({"loss": loss.item()}, step=number)
        if on_overflow == "stop" and tracker is not None and tracker.overflowed:
            break
    accelerator.end_training()
    return number + 1


print(globals()[f"by_{trainer}"]())
print(sum(float(each.detach().double().nansum()) for each in net.parameters()).hex())
