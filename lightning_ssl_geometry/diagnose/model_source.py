"""ModelSource: where the network to diagnose comes from."""

__all__ = ["WAYS", "ModelSource", "named_source", "source_name"]

import re
from argparse import ArgumentError
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lightning as L
from lightning.pytorch import LightningDataModule
from torch import nn

from lightning_ssl_geometry.data import ImageDataModule
from lightning_ssl_geometry.diagnose.checkpoint import load_weights
from lightning_ssl_geometry.diagnose.diagnosed_model import DiagnosedModel
from lightning_ssl_geometry.diagnose.hub import load_hub, pooled_by
from lightning_ssl_geometry.diagnose.loaded import Loaded
from lightning_ssl_geometry.diagnose.trust import read_plain_yaml
from lightning_ssl_geometry.methods.base import SSLModule
from lightning_ssl_geometry.nn import TimmBackbone
from lightning_ssl_geometry.observe.batch_keys import BatchKeys
from lightning_ssl_geometry.observe.tokens import Token

WAYS = ("run", "timm", "hub", "model")
_PREFIXES = {"timm": "timm", "hf": "hub"}
_WEIGHTS = {
    "run": "whose weights are always loaded",
    "hub": "whose weights are always loaded",
    "model": "whose weights are its own or those of `checkpoint`",
}


@dataclass
class ModelSource:
    """The network to diagnose, described by values that YAML can hold.

    Give exactly one of `run`, `timm`, `hub` and `model`.

    Args:
        run: Folder of a run of `ssl-geometry fit`, or a checkpoint in it. If a folder is given, its newest checkpoint
            is loaded.
        timm: Name of a network in timm. The network is built without its classifier.
        hub: Name of a model on the Hugging Face Hub, such as "timm/resnet18.a1_in1k", with "@" and a revision if
            needed, or a folder in the Hub's layout. The folder has a config.json of timm or of transformers and the
            weights as model.safetensors.
        model: A LightningModule or another `torch.nn.Module`.
        pretrained: Download and load timm's weights. It must be True beside `run`, `hub` and `model`.
        checkpoint: File of the weights for `model` or `timm`: a file of `torch.save`, or a .safetensors file.
        prefix: Prefix of the network's keys in the checkpoint, such as "backbone.". It is removed from the keys.
        ignore: Prefixes of keys in the checkpoint to ignore, after `prefix` is removed. The classifier of a timm
            network is always ignored.
        backbone: Name of the submodule that maps images to h.
        layer: Name of a submodule of the backbone whose output is h. None: the backbone's output is h.
        layers: Patterns of names of submodules of the backbone that are compared layer by layer, such as "blocks.*".
        token: The vector that stands for tokens (N, T, D) or a feature map, for h and for `layers`: "cls", "mean",
            "patch_mean", "mean_nhwc" or "flatten" of :func:`lightning_ssl_geometry.observe.tokens.read_tokens`. None:
            the way in which a timm network pools. For other networks, such outputs are then an error.
        projector: Name of the submodule that maps h to z.
        mean: Mean per channel for normalising images. None: the mean of timm's pretrained weights or of the run's
            training data. If neither is known, the mean of the diagnosed data is used.
        std: Standard deviation per channel, given together with `mean`.
        batch_keys: Where a batch holds views, image, label and index: see :class:`DiagnosedModel`.

    Raises:
        ValueError: If not exactly one of `run`, `timm`, `hub` and `model` is given, or another argument does not apply
            to it.
    """

    run: str | None = None
    timm: str | None = None
    hub: str | None = None
    model: nn.Module | None = None
    pretrained: bool = True
    checkpoint: str | None = None
    prefix: str = ""
    ignore: str | list[str] = ""
    backbone: str | None = None
    layer: str | None = None
    layers: str | list[str] = ""
    token: Token | None = None
    projector: str | None = None
    mean: list[float] | None = None
    std: list[float] | None = None
    batch_keys: BatchKeys = field(default_factory=dict)

    def __post_init__(self) -> None:
        given = [name for name in WAYS if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(
                f"Expected one of `run`, `timm`, `hub` and `model`, but got {' and '.join(given) or 'none'}."
            )
        if self.run is not None and self.checkpoint is not None:
            raise ValueError("Expected `checkpoint` beside `model` or `timm`; as `run`, give the checkpoint itself.")
        if self.hub is not None and self.checkpoint is not None:
            raise ValueError(
                "Expected `checkpoint` beside `model` or `timm`, but got it beside `hub`, which has weights."
            )
        if self.timm is None and not self.pretrained:
            raise ValueError(
                f"Expected `pretrained=True` beside `{given[0]}`, {_WEIGHTS[given[0]]}, but got False. A network with "
                "random weights is `timm` with `pretrained=False`, or a `model` without `checkpoint`."
            )
        if self.checkpoint is None and (self.prefix or self.ignore):
            raise ValueError("Expected `prefix` and `ignore` beside a `checkpoint`, but got none.")
        if (self.mean is None) != (self.std is None):
            raise ValueError("Expected `mean` and `std`, both or none, but got one.")

    @property
    def config(self) -> Path | None:
        """Path of the run's config.yaml, or None if `run` is not given."""
        return None if self.run is None else _locate(Path(self.run))[0] / "config.yaml"

    @property
    def name(self) -> str:
        """Name of the model in logs and on pages."""
        if self.model is not None:
            return type(self.model).__name__
        return self.timm or source_name(f"hf:{self.hub}" if self.hub else str(self.run))

    def load(self, augment: nn.Module | None = None) -> "Loaded":
        """Build the network and load its weights. If batches have no views, `augment` makes two views of an image.

        Raises a FileNotFoundError if a file is missing. Raises a ValueError if weights or submodules are missing or do
        not fit.
        """
        if self.run is not None:
            loaded = _load_run(Path(self.run))
        elif self.timm is not None:
            loaded = _load_timm(self.timm, self.pretrained and self.checkpoint is None)
        elif self.hub is not None:
            loaded = load_hub(self.hub, normalized=self.mean is not None)
        else:
            assert self.model is not None
            loaded = Loaded(self.model, {})
        if self.checkpoint is not None:
            ignore = [self.ignore] if isinstance(self.ignore, str) else list(self.ignore)
            network: nn.Module = loaded.network
            if isinstance(network, TimmBackbone):
                ignore += _classifiers(network)
                network = network.network
            load_weights(network, self.checkpoint, self.prefix, ignore=[start for start in ignore if start])
            loaded.about = {"checkpoint": str(self.checkpoint)}
        if self.mean is not None and self.std is not None:
            loaded.normalization = tuple(self.mean), tuple(self.std)
        self._name_parts(loaded, augment)
        loaded.about = {"model": self.name, "representation": self._representation(loaded.network)} | loaded.about
        return loaded

    def _name_parts(self, loaded: Loaded, augment: nn.Module | None) -> None:
        backbone, layer, projector = self.backbone, self.layer, self.projector
        layers = [self.layers] if isinstance(self.layers, str) else list(self.layers)
        layers = [pattern for pattern in layers if pattern]
        named = any((backbone, layer, layers, projector, self.token))
        if isinstance(loaded.network, SSLModule):
            if not named and not self.batch_keys:
                return
            if not any((backbone, layer, projector)):
                backbone, projector = "backbone" if layers or self.token else None, "projector"
        elif isinstance(loaded.network, TimmBackbone):  # the names are those of timm
            loaded.network = loaded.network.network
            backbone, layer = (_inside("network", name) for name in (backbone, layer))
        token = self.token or loaded.token
        loaded.network = DiagnosedModel(
            loaded.network,
            backbone,
            layer,
            projector=projector,
            batch_keys=self.batch_keys,
            augment=augment,
            layers=layers,
            token=token,
        )
        if layers:
            loaded.about = {"layers": ", ".join(layers)} | loaded.about
        if token:
            loaded.about = {"token": token} | loaded.about

    def _representation(self, network: nn.Module) -> str:
        if isinstance(network, SSLModule):
            return "backbone"
        inner = self.layer and f"{self.backbone}.{self.layer}" if self.backbone else self.layer
        return inner or self.backbone or "the output of the network"


def _inside(outer: str, name: str | None) -> str | None:
    return None if name == outer or name is None else name.removeprefix(f"{outer}.")


def _load_timm(name: str, pretrained: bool) -> Loaded:
    try:
        backbone = TimmBackbone(name, pretrained=pretrained)
    except OSError as error:
        raise OSError(
            f"Expected timm's weights of {name!r} to be downloaded, but: {str(error).splitlines()[0]} Without them, "
            "use `pretrained=False` for random weights, or `checkpoint=FILE` for your own."
        ) from error
    known: dict[str, Any] = backbone.network.pretrained_cfg  # type: ignore[assignment]
    normalization = (tuple(known["mean"]), tuple(known["std"])) if pretrained else None
    about = {"weights": "timm's" if pretrained else "random"}
    size, token = int(known["input_size"][-1]), pooled_by(backbone.network)
    return Loaded(backbone, about, normalization, image_size=size, token=token)


def _classifiers(backbone: TimmBackbone) -> list[str]:
    known: dict[str, Any] = backbone.network.pretrained_cfg  # type: ignore[assignment]
    names = known.get("classifier") or ()
    return [f"{name}." for name in ([names] if isinstance(names, str) else names)]


def _load_run(path: Path) -> Loaded:
    folder, checkpoint = _locate(path)
    model, data = _configured(folder / "config.yaml")
    load_weights(model, checkpoint)
    loaded = Loaded(model, {"checkpoint": str(checkpoint)}, data=data)
    if isinstance(data, ImageDataModule):
        loaded.image_size = data.image_size
    return loaded


def _configured(config: Path) -> tuple[L.LightningModule, LightningDataModule | None]:
    from jsonargparse import ArgumentParser

    if not config.is_file():
        raise FileNotFoundError(f"Expected `run` to have its config.yaml, but there is none at {config}.")
    held = read_plain_yaml(config) or {}
    if not isinstance(held, dict):
        raise ValueError(f"Expected {config} to hold options, but it holds a {type(held).__name__}.")
    parts = {name: held[name] for name in ("model", "data") if held.get(name) is not None}
    parser = ArgumentParser(exit_on_error=False)
    parser.add_subclass_arguments(L.LightningModule, "model", fail_untyped=False)
    parser.add_subclass_arguments(LightningDataModule, "data", required=False, fail_untyped=False)
    try:
        built = parser.instantiate_classes(parser.parse_object(parts))
    except ArgumentError as error:
        raise ValueError(f"Expected {config} to say how the run's model and data are built, but: {error}") from error
    return built.model, built.get("data")


def _locate(path: Path) -> tuple[Path, Path]:
    if not path.exists():
        hint = f" Of timm's networks, say timm:{path}." if is_timm(str(path)) else ""
        raise FileNotFoundError(
            f"Expected `run` to be a run's folder or a checkpoint in it, but there is no {path}.{hint}"
        )
    if path.is_file():
        folder = next((parent for parent in path.resolve().parents if (parent / "config.yaml").is_file()), path.parent)
        return folder, path
    folder = newest_version(path)
    checkpoints = (folder / "checkpoints").glob("*.ckpt")
    newest = max(checkpoints, key=lambda file: (file.stat().st_mtime, file.stem == "last"), default=None)
    if newest is None:
        raise FileNotFoundError(
            f"Expected `run` to have a checkpoint, but there is none in {folder / 'checkpoints'} (the callback "
            "ModelCheckpoint writes them)."
        )
    return folder, newest


def newest_version(folder: Path, file: str = "config.yaml") -> Path:
    """Return the newest folder version_* that has a file, or `folder` if it has this file or there is none."""
    if (folder / file).is_file():
        return folder
    versions = [each for each in folder.glob("version_*") if (each / file).is_file()]
    versions = [each for each in versions if each.name.removeprefix("version_").isdecimal()]
    return max(versions, key=lambda each: int(each.name.removeprefix("version_")), default=folder)


def is_timm(name: str) -> bool:
    """Whether timm knows a network of this name."""
    import timm

    return bool(timm.is_model(name))


def named_source(what: str) -> dict[str, str]:
    """Return the argument of :class:`ModelSource` that a text such as "timm:resnet18" stands for, by name."""
    kind, colon, name = what.partition(":")
    return {_PREFIXES[kind]: name} if colon and kind in _PREFIXES else {"run": what}


def source_name(what: str) -> str:
    """Return a short name for a model.

    `what` is "timm:" and timm's name of a network, "hf:" and the name of a model on the Hugging Face Hub, or the path
    of a YAML file, of a run or of a checkpoint.
    """
    if what.startswith("timm:"):
        return what.removeprefix("timm:")
    if what.startswith("hf:"):
        return re.split(r"[/\\]", what.removeprefix("hf:").rstrip("/\\"))[-1].replace("@", "_") or "model"
    path = Path(what)
    if path.suffix in (".yaml", ".yml"):
        return path.stem
    parts = [part for part in path.resolve().parts if part != "checkpoints" and not part.startswith("version_")]
    return parts[-2] if path.is_file() else parts[-1]
