"""Train contrastive self-supervised models with PyTorch Lightning and see the geometry of what they learn."""

__all__ = ["__version__"]

__version__ = "0.1.0.dev0"
