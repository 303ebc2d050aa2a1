"""SimCSE with Hugging Face's Trainer, observed: python examples/attach/hugging_face_trainer.py."""

# pip install transformers accelerate. In SimCSE (Gao, Yao & Chen, 2021), the two views of a sentence are two passes
# with different dropout. The sentences are random numbers, and the encoder is small, so that nothing is downloaded.

import sys

import torch
from torch import nn
from torch.nn.functional import cross_entropy, normalize
from transformers import BertConfig, BertModel, Trainer, TrainerCallback, TrainingArguments

from lightning_ssl_geometry import GeometryLoop


class SimCSE(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.bert = BertModel(config)
        self.head = nn.Linear(config.hidden_size, 32)

    def forward(self, input_ids, attention_mask=None):
        z0, z1 = (normalize(self.head(self.bert(input_ids, attention_mask).pooler_output), dim=1) for _ in range(2))
        return {"loss": cross_entropy(z0 @ z1.T / 0.05, torch.arange(len(z0), device=z0.device))}


class Geometry(TrainerCallback):
    """Observes the training steps of Hugging Face's Trainer."""

    def __init__(self, folder, **settings):
        self.folder, self.settings = folder, settings

    def on_train_begin(self, args, state, control, model=None, **kwargs):
        self.geometry = GeometryLoop(model, self.folder, **self.settings)

    def on_step_begin(self, args, state, control, **kwargs):
        self.step = self.geometry.step()
        self.step.__enter__()

    def on_substep_end(self, args, state, control, **kwargs):  # of a batch of which gradients are accumulated
        self.on_step_end(args, state, control)
        self.on_step_begin(args, state, control)

    def on_step_end(self, args, state, control, **kwargs):
        self.step.__exit__(None, None, None)

    def on_epoch_end(self, args, state, control, **kwargs):
        self.geometry.read_out()

    def on_train_end(self, args, state, control, **kwargs):
        self.geometry.close()


def main(folder="runs/hugging_face_trainer", **arguments):
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128}
    config = BertConfig(vocab_size=100, **sizes)
    torch.manual_seed(0)
    sentences = [{"input_ids": torch.randint(0, 100, (16,))} for _ in range(128)]
    geometry = Geometry(folder, taps={"h": "bert.pooler", "z": "head", "projector": "head"})
    settings = {"per_device_train_batch_size": 32, "num_train_epochs": 2, "save_strategy": "no", "report_to": "none"}
    settings |= {"output_dir": folder, "use_cpu": True, "disable_tqdm": True} | arguments
    trainer = Trainer(SimCSE(config), TrainingArguments(**settings), train_dataset=sentences, callbacks=[geometry])
    trainer.train()
    return geometry.geometry


if __name__ == "__main__":
    main(*sys.argv[1:2])  # a folder
