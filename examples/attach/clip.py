"""A CLIP with an image tower and a text tower of different widths, observed: python examples/attach/clip.py."""

import lightning as L
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy, normalize
from torch.utils.data import DataLoader, TensorDataset

from lightning_ssl_geometry.callbacks import GeometryMonitor, LinearProbe, RunReport
from lightning_ssl_geometry.loggers import ResumableCSVLogger


class Host(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.visual = nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64))
        self.text = nn.Sequential(nn.Embedding(13, 16), nn.Flatten(), nn.Linear(48, 48), nn.ReLU())
        self.visual_head, self.text_head = nn.Linear(64, 16), nn.Linear(48, 16)
        self.logit_scale = nn.Parameter(torch.tensor(1 / 0.07).log())

    def forward(self, image, text):
        return normalize(self.visual_head(self.visual(image))), normalize(self.text_head(self.text(text)))

    def training_step(self, batch, batch_idx):
        z1, z2 = self(batch["image"], batch["text"])
        logits, own = self.logit_scale.exp() * z1 @ z2.T, torch.arange(len(z1), device=z1.device)
        return (cross_entropy(logits, own) + cross_entropy(logits.T, own)) / 2

    validation_step = training_step

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


DIGITS, LABEL = (torch.tensor(array)[:1200] for array in load_digits(return_X_y=True))
BOLD = (DIGITS.mean(1) > DIGITS.mean()).long()
CAPTIONS = torch.stack([torch.full_like(LABEL, 12), 10 + BOLD, LABEL], 1)  # "a", "light" or "bold", the digit
SAMPLES = [
    {"image": image, "text": text, "label": label}
    for image, text, label in TensorDataset(DIGITS.float() / 16, CAPTIONS, LABEL)
]
LOADER = DataLoader(SAMPLES[:900], batch_size=60, shuffle=True)
VALIDATION = DataLoader(SAMPLES[900:], batch_size=60)

# Each name lists the towers in the order of the views. h is 64 wide in one tower and 48 in the other.
TAPS = {"h": ["visual", "text"], "z": ["visual_head", "text_head"], "projector": ["visual_head", "text_head"]}
MONITOR = GeometryMonitor(
    taps=TAPS, batch_keys={"views": ["image", "text"], "label": "label"}, stages=["train", "val", "probe"]
)
VISUAL = {"h": "visual", "encoder": "visual", "projector": "visual_head"}  # one tower alone
CALLBACKS = [MONITOR, LinearProbe(10, taps=VISUAL, batch_keys={"image": "image", "label": "label"})]

if __name__ == "__main__":
    L.Trainer(max_epochs=6, logger=ResumableCSVLogger("runs", name="clip"), callbacks=[*CALLBACKS, RunReport()]).fit(
        Host(), LOADER, VALIDATION
    )
