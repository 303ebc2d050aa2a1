"""Load a model of the Hugging Face Hub, or of a local folder in the Hub's layout. No code of the model is run.

The file config.json says which library made the model: timm writes `architecture`, and transformers writes
`model_type`. The weights are read from model.safetensors, which holds tensors only.
"""

__all__ = ["load_hub", "pooled_by"]

import json
import math
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from lightning_ssl_geometry.diagnose.loaded import Loaded
from lightning_ssl_geometry.observe.tokens import Token
from lightning_ssl_geometry.spelling import did_you_mean

_WEIGHTS = "model.safetensors"
_CONFIG, _IMAGES = "config.json", "preprocessor_config.json"
_READ = (_CONFIG, _IMAGES, _WEIGHTS, "model-*-of-*.safetensors", f"{_WEIGHTS}.index.json")
_MOST_BYTES = 2**24  # of a JSON file
_RESCALE = 1 / 255
Normalization = tuple[tuple[float, ...], tuple[float, ...]]


def load_hub(name: str, normalized: bool = False) -> Loaded:
    """Load a model without its classifier, with the normalisation and the size of its images if these are known.

    Args:
        name: The model's name on the Hub, such as "timm/resnet18.a1_in1k", with "@" and a revision if needed, or a
            folder in the Hub's layout. Files that huggingface_hub has downloaded before are not downloaded again.
        normalized: The caller knows the normalisation, so that of preprocessor_config.json is not read.

    Raises:
        FileNotFoundError: If `name` is the path of no folder, or a folder lacks a file.
        ImportError: If the model needs transformers, which is not installed.
        OSError: If a file cannot be downloaded.
        ValueError: If config.json is of another library, a file is broken, or preprocessor_config.json does not fit
            images in [0, 1].
    """
    folder, revision = _folder(name)
    config = _json(folder / _CONFIG)
    if not any(folder.glob("model*.safetensors")):
        others = ", ".join(sorted(path.name for path in folder.iterdir())) or "nothing"
        raise FileNotFoundError(
            f"Expected {name!r} to have its weights in {_WEIGHTS}, but it has {others}. Weights in other files can run "
            "code when they are read; `model` and `checkpoint` load those that are tensors only."
        )
    if "architecture" in config:
        loaded = _timm(name, folder, config)
    elif "model_type" in config:
        loaded = _transformers(name, folder, normalized)
    else:
        raise ValueError(
            f"Expected {_CONFIG} of {name!r} to name an `architecture` of timm or a `model_type` of transformers, but "
            f"it has {', '.join(map(str, list(config)[:5])) or 'nothing'}. If another library made it, download "
            "the file, and give its class as `model` with `checkpoint=FILE`."
        )
    loaded.about = {"weights": f"the Hub's {name}", **({"revision": revision} if revision else {})} | loaded.about
    return loaded


def pooled_by(network: nn.Module) -> Token:
    """Return the `token` with which a network of timm makes h: its first token, or the mean over positions."""
    if getattr(network, "global_pool", None) == "token":
        return "cls"
    return "mean_nhwc" if getattr(network, "output_fmt", None) == "NHWC" else "mean"


def _folder(name: str) -> tuple[Path, str]:
    if name and Path(name).is_dir():
        return Path(name), ""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    repository, _, revision = name.partition("@")
    if _is_path(name):
        raise FileNotFoundError(_no_folder(name))
    try:
        found = Path(snapshot_download(repository, revision=revision or None, allow_patterns=list(_READ)))
    except HFValidationError as error:
        raise FileNotFoundError(_no_folder(name)) from error
    except (HfHubHTTPError, OSError) as error:
        said = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise OSError(f"{_no_folder(name)} It was no model to download either: {said}") from error
    return found, found.name  # of a commit


def _is_path(name: str) -> bool:
    """Whether a text is no name: it is empty, absolute, begins with a dot or a tilde, has two slashes, or exists."""
    path = Path(name)
    return not name or path.is_absolute() or name.startswith((".", "~")) or len(path.parts) > 2 or path.exists()


def _no_folder(name: str) -> str:
    path = Path(name)
    needed = f"a local folder with {_CONFIG} and {_WEIGHTS}, or a name of the Hub such as 'timm/resnet18.a1_in1k'"
    if path.is_file():
        return f"Expected `hub` to be {needed}, but {name!r} is a file."
    beside = [each for each in path.parent.iterdir() if each.is_dir()] if path.parent.is_dir() else []
    return f"Expected `hub` to be {needed}, but there is no folder {name!r}.{did_you_mean(name, map(str, beside))}"


def _json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise FileNotFoundError(
            f"Expected a model in the Hugging Face Hub's layout in the folder {path.parent}, but it has no {path.name}."
        )
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise ValueError("it is too large")
        held = json.loads(path.read_text("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"Expected {path} to hold JSON, but: {error}.") from error
    if not isinstance(held, dict):
        raise ValueError(f"Expected {path} to hold a JSON object, but it holds a {type(held).__name__}.")
    return held


def _timm(name: str, folder: Path, config: dict[str, Any]) -> Loaded:
    import timm
    from timm.models import PretrainedCfg

    architecture, known, arguments = (config.get(key) for key in ("architecture", "pretrained_cfg", "model_args"))
    if not isinstance(architecture, str) or not timm.is_model(architecture):
        raise ValueError(f"Expected {name!r} to be a model that timm knows, but its architecture is {architecture!r}.")
    known = dict(known) if isinstance(known, dict) else config  # old files have one level only
    known |= {key: config[key] for key in ("num_classes",) if key in config}  # of the weights; the block may be older
    own = {key: value for key, value in known.items() if key in PretrainedCfg.__dataclass_fields__}
    own = {key: value for key, value in own.items() if key not in _SOURCES} | {"file": str(folder / _WEIGHTS)}
    options = dict(arguments) if isinstance(arguments, dict) else {}
    if "num_classes" in own:
        options["num_classes"] = own["num_classes"]  # with the classifier, timm refuses files that lack a key
    try:
        network: Any = timm.create_model(architecture, pretrained=True, pretrained_cfg=own, **options)
        network.reset_classifier(0)
    except Exception as error:  # of safetensors, of torch for keys and shapes, of the network for its arguments
        raise ValueError(f"Expected {name!r} to hold timm's {architecture}, but: {_short(error)}") from error
    complete: dict[str, Any] = network.pretrained_cfg
    mean, std = (_listed(complete, key, name, length=None) for key in ("mean", "std"))
    size = _listed(complete, "input_size", name, length=3)[-1]
    return Loaded(network, {}, (mean, std), image_size=int(size), token=pooled_by(network))


def _listed(config: dict[str, Any], key: str, name: str, length: int | None) -> tuple[float, ...]:
    """Return a list of numbers. A `length` is that of sizes, which are integers above 0."""
    given = config.get(key)
    values = tuple(given) if isinstance(given, list | tuple) else ()
    fits = bool(values) and all(_is_number(value) and math.isfinite(value) for value in values)
    if length is not None:
        fits = fits and len(values) == length and all(isinstance(value, int) and value > 0 for value in values)
    if key == "std":
        fits = fits and min(values) > 0
    if not fits:
        kinds = {"mean": "numbers", "std": "numbers > 0"}
        kind = kinds.get(key, f"{length} integers > 0")
        raise ValueError(f"Expected {_CONFIG} of {name!r} to have a list of {kind} as {key}, but got {given!r}.")
    return values


_SOURCES = ("file", "url", "hf_hub_id", "hf_hub_filename", "source", "state_dict", "custom_load")
_LONGEST = 300  # of another library's message


def _short(error: Exception) -> str:
    said = " ".join(str(error).split()) or type(error).__name__
    return said if len(said) <= _LONGEST else f"{said[:_LONGEST]}…"


_AFTER = "pooler."  # of the last hidden state, so that its weights may be missing


class _LastHiddenState(nn.Module):
    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        hidden: Tensor = self.network(pixel_values=x).last_hidden_state
        return hidden


def _transformers(name: str, folder: Path, normalized: bool) -> Loaded:
    try:
        from transformers import AutoModel
    except ImportError as error:
        raise ImportError(
            f"Expected transformers, as {name!r} is a model of it, but it is not installed. "
            "pip install 'lightning-ssl-geometry[transformers]'"
        ) from error
    options = {"trust_remote_code": False, "use_safetensors": True, "local_files_only": True}
    try:
        network, report = AutoModel.from_pretrained(folder, output_loading_info=True, **options)
    except Exception as error:  # of safetensors, of its configurations, of missing packages
        raise ValueError(f"Expected {name!r} to hold a model of transformers, but: {_short(error)}") from error
    if random := sorted(key for key in report["missing_keys"] if not key.startswith(_AFTER)):
        raise ValueError(
            f"Expected {name!r} to have all weights, but {len(random)} are missing, such as {random[0]!r}."
        )
    images = _json(folder / _IMAGES) if (folder / _IMAGES).is_file() else {}
    size = images.get("crop_size") or images.get("size") or getattr(network.config, "image_size", None)
    if isinstance(size, dict):
        size = size.get("height") or size.get("shortest_edge")
    channels = getattr(network.config, "num_channels", 3)
    normalization = None if normalized else _normalization(images, name, channels)
    return Loaded(_LastHiddenState(network), {}, normalization, image_size=size if isinstance(size, int) else None)


def _normalization(images: dict[str, Any], name: str, channels: int) -> Normalization | None:
    expected = {"do_rescale": True, "rescale_factor": _RESCALE, "rescale_offset": False}
    for key, value in expected.items():
        if (given := images.get(key, value)) != value and not (key == "rescale_factor" and _is_near(given, value)):
            raise ValueError(_refused(name, f"pixels in [0, 1], with {key} {value}", f"{given!r}"))
    if not images.get("do_normalize", True):
        return (0.0,) * channels, (1.0,) * channels
    if images.get("image_mean") is None or images.get("image_std") is None:
        return None
    mean, std = (_per_channel(images[key], key, name=name, channels=channels) for key in ("image_mean", "image_std"))
    return mean, std


def _per_channel(given: Any, key: str, *, name: str, channels: int) -> tuple[float, ...]:
    values = tuple(given) if isinstance(given, list) else (given,) * channels
    if not values or not all(_is_number(value) for value in values):
        raise ValueError(_refused(name, f"a number, or one per channel, as {key}", f"{given!r}"))
    return values


def _is_number(given: Any) -> bool:
    return isinstance(given, int | float) and not isinstance(given, bool)


def _is_near(given: Any, value: float) -> bool:
    return _is_number(given) and math.isclose(given, value, rel_tol=1e-3)


def _refused(name: str, expected: str, got: str) -> str:
    return f"Expected {_IMAGES} of {name!r} to have {expected}, but got {got}. Give `mean` and `std` instead."
