"""Models in the layout of the Hugging Face Hub, without a network: local folders, and the cache of huggingface_hub."""

import json
import math
import shutil
import sys
from types import SimpleNamespace

import huggingface_hub
import pandas as pd
import pytest
import timm
import torch
import transformers
from diagnose.test_diagnosis import write_images
from safetensors.torch import load_file, save_file
from timm.models import save_for_hf

from lightning_ssl_geometry.cli import main
from lightning_ssl_geometry.diagnose import ModelSource
from lightning_ssl_geometry.diagnose.hub import pooled_by
from lightning_ssl_geometry.diagnose.model_source import named_source, source_name

ARCHITECTURE, SIDE = "test_vit", 160
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(scope="module")
def original():
    torch.manual_seed(3)
    network = timm.create_model(ARCHITECTURE, num_classes=10).eval()
    network.pretrained_cfg = network.pretrained_cfg | {"mean": (0.1, 0.2, 0.3), "std": (0.4, 0.5, 0.6)}
    return network


@pytest.fixture
def folder(original, tmp_path):
    """What timm writes for the Hub."""
    save_for_hf(original, tmp_path / "mine", safe_serialization=True)
    (tmp_path / "mine/pytorch_model.bin").unlink(missing_ok=True)
    return tmp_path / "mine"


@pytest.fixture
def cached(folder, tmp_path, monkeypatch):
    """The cache of huggingface_hub after a download of user/mine; the Hub itself is out of reach."""
    place = tmp_path / "cache/models--user--mine"
    shutil.copytree(folder, place / "snapshots" / COMMIT)
    (place / "refs").mkdir()
    (place / "refs/main").write_text(COMMIT)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    return tmp_path


def without_classifier(network, x):
    with torch.no_grad():
        return network.forward_head(network.forward_features(x), pre_logits=True)


def test_a_folder_of_timm(original, folder):
    loaded = ModelSource(hub=str(folder)).load()
    x = torch.rand(2, 3, SIDE, SIDE)
    torch.testing.assert_close(loaded.module.eval()(x).detach(), without_classifier(original, x))
    assert loaded.normalization == ((0.1, 0.2, 0.3), (0.4, 0.5, 0.6))
    assert loaded.image_size == SIDE
    assert loaded.about["weights"] == f"the Hub's {folder}"
    assert loaded.about["token"] == pooled_by(original)


def test_a_name_is_found_in_the_cache(original, cached, monkeypatch):
    monkeypatch.chdir(cached)
    write_images(cached / "images", n=12, classes=0)
    quiet = ["--accelerator", "cpu", "--progress", "false", "--batch_size", "4"]
    main(["diagnose", "hf:user/mine", "--layers", "blocks.*", "--images", "images", *quiet])
    diagnosis = cached / "runs/diagnosis/mine/version_0"
    layers = pd.read_csv(diagnosis / "layers.csv")["layer"].tolist()
    assert layers == [*(f"blocks.{place}" for place in range(len(original.blocks))), "h"]
    record = json.loads((diagnosis / "run.json").read_text())
    expected = {
        "weights": "the Hub's user/mine",
        "revision": COMMIT,
        "layers": "blocks.*",
        "token": pooled_by(original),
    }
    assert {key: record[key] for key in expected} == expected
    assert record["image_shape"] == f"3 x {SIDE} x {SIDE}"
    assert ModelSource(hub=f"user/mine@{COMMIT}").load().about["revision"] == COMMIT


def one_level(folder, **changes):
    """Rewrite config.json as timm wrote it before the block `pretrained_cfg` existed: all keys at one level."""
    config = json.loads((folder / "config.json").read_text())
    known = {key: config[key] for key in ("architecture", "num_classes", "num_features")}
    (folder / "config.json").write_text(json.dumps(config["pretrained_cfg"] | known | changes))


@pytest.mark.parametrize("fixed", [True, False])
def test_an_old_folder_of_timm_is_read_as_timm_reads_it(original, folder, fixed):
    one_level(folder, fixed_input_size=fixed)  # if false, timm resamples the position embeddings to its own size
    loaded = ModelSource(hub=str(folder)).load()
    theirs = timm.create_model(f"local-dir:{folder}", pretrained=True).eval()
    x = torch.rand(2, 3, SIDE, SIDE)
    h = loaded.module.eval()(x).detach()
    assert torch.equal(h, without_classifier(theirs, x))
    assert torch.equal(h, without_classifier(original, x)) == fixed
    known = theirs.pretrained_cfg
    assert loaded.normalization == (tuple(known["mean"]), tuple(known["std"])) == ((0.1, 0.2, 0.3), (0.4, 0.5, 0.6))
    assert loaded.image_size == known["input_size"][-1] == SIDE


def test_the_number_of_classes_is_that_of_the_weights(original, folder):
    config = json.loads((folder / "config.json").read_text())
    config["pretrained_cfg"]["num_classes"] = 1000  # of the weights before they were fine-tuned
    del config["model_args"]
    config["pretrained_cfg"]["fixed_input_size"] = True
    (folder / "config.json").write_text(json.dumps(config))
    x = torch.rand(2, 3, SIDE, SIDE)
    h = ModelSource(hub=str(folder)).load().module.eval()(x).detach()
    assert torch.equal(h, without_classifier(original, x))


@pytest.mark.parametrize("name", ["user/other", "user/mine@main2"])
def test_what_is_not_in_the_cache_cannot_be_downloaded_here(cached, name):
    said = f"a local folder with config.json and model.safetensors, or .*, but there is no folder '{name}'. It was no "
    with pytest.raises(OSError, match=f"{said}model to download either: "):
        ModelSource(hub=name).load()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("", "but there is no folder ''.$"),
        ("a/b/c d", "but there is no folder 'a/b/c d'.$"),
        ("./mien", "but there is no folder './mien'. Did you mean `mine`?$"),
        ("mine/config.json", "but 'mine/config.json' is a file.$"),
        ("/nowhere/at/all", "but there is no folder '/nowhere/at/all'.$"),
        ("empty", "in the folder empty, but it has no config.json.$"),
        ("no_weights", "weights in model.safetensors, but it has config.json. Weights"),
    ],
)
def test_a_wrong_path_is_not_downloaded(folder, monkeypatch, name, said):
    def download(*_, **__):
        raise AssertionError("a path was taken for a name of the Hub")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    monkeypatch.chdir(folder.parent)
    (folder.parent / "empty").mkdir()
    (folder.parent / "no_weights").mkdir()
    shutil.copy(folder / "config.json", folder.parent / "no_weights")
    with pytest.raises(FileNotFoundError, match=said.replace("?", r"\?")):
        ModelSource(hub=name).load()


def rewritten(**changes):
    def rewrite(folder):
        config = json.loads((folder / "config.json").read_text()) | changes
        (folder / "config.json").write_text(json.dumps({key: value for key, value in config.items() if value != "-"}))

    return rewrite


def drop_a_key(folder):
    state = load_file(folder / "model.safetensors")
    del state["blocks.0.attn.qkv.weight"]
    save_file(state, folder / "model.safetensors")


@pytest.mark.parametrize(
    ("spoil", "error", "message"),
    [
        (lambda folder: (folder / "config.json").unlink(), FileNotFoundError, "in .*mine, but it has no config.json"),
        (lambda folder: (folder / "config.json").write_text("{"), ValueError, "config.json to hold JSON, but: "),
        (lambda folder: (folder / "config.json").write_text("[1]"), ValueError, "a JSON object, but it holds a list"),
        (rewritten(architecture="vit_of_mine"), ValueError, "that timm knows, but its architecture is 'vit_of_mine'"),
        (rewritten(architecture=3), ValueError, "that timm knows, but its architecture is 3"),
        (
            rewritten(architecture="-"),
            ValueError,
            "`architecture` of timm or a `model_type` of transformers, but it has ",
        ),
        (rewritten(model_args={"zebra": 1}), ValueError, "to hold timm's test_vit, but: .*zebra"),
        (drop_a_key, ValueError, "to hold timm's test_vit, but: .*blocks.0.attn.qkv.weight"),
        (
            lambda folder: (folder / "model.safetensors").write_bytes(b"no tensors"),
            ValueError,
            "to hold timm's test_vit, but: ",
        ),
        (
            lambda folder: (folder / "model.safetensors").rename(folder / "pytorch_model.bin"),
            FileNotFoundError,
            "weights in model.safetensors, but it has config.json, pytorch_model.bin. Weights in other files can run",
        ),
    ],
)
def test_a_folder_that_is_spoilt(folder, spoil, error, message):
    spoil(folder)
    with pytest.raises(error, match=message):
        ModelSource(hub=str(folder)).load()


NO_NUMBERS = {
    "mean": (3, "x", [], [None], ["0.1"], [math.nan], [True], None),
    "std": (3, [0.0, 0.0, 0.0], {"a": 1}),
    "input_size": ({}, [], [3, 160], [3, 160, "160"], [3, 160, 0], 160),
}


@pytest.mark.parametrize(("key", "value"), [(key, value) for key, values in NO_NUMBERS.items() for value in values])
def test_numbers_of_another_type_in_the_config_are_one_line(folder, key, value):
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config["pretrained_cfg"][key] = value
    path.write_text(json.dumps(config))
    with pytest.raises(ValueError, match=r"^Expected .*mine") as found:
        ModelSource(hub=str(folder)).load()
    assert "\n" not in str(found.value)
    assert f"as {key}, but got" in str(found.value) or "to hold timm's test_vit, but: " in str(found.value)


def test_bad_arguments():
    with pytest.raises(ValueError, match="`checkpoint` beside `model` or `timm`, but got it beside `hub`"):
        ModelSource(hub="user/mine", checkpoint="x.safetensors")
    with pytest.raises(ValueError, match="`pretrained=True` beside `hub`, whose weights are always loaded, but got Fa"):
        ModelSource(hub="user/mine", pretrained=False)
    with pytest.raises(ValueError, match="but got timm and hub"):
        ModelSource(hub="user/mine", timm="resnet18")


@pytest.mark.parametrize(
    ("what", "name", "named"),
    [
        ("hf:user/mine", "mine", {"hub": "user/mine"}),
        ("hf:user/mine@v2", "mine_v2", {"hub": "user/mine@v2"}),
        ("hf:folder/of/mine/", "mine", {"hub": "folder/of/mine/"}),
        ("timm:resnet18", "resnet18", {"timm": "resnet18"}),
        ("runs/c:d", "c:d", {"run": "runs/c:d"}),
    ],
)
def test_names(what, name, named):
    assert source_name(what) == name
    assert named_source(what) == named


@pytest.mark.parametrize(
    ("network", "token"),
    [
        (SimpleNamespace(global_pool="token"), "cls"),
        (SimpleNamespace(global_pool="avg"), "mean"),
        (SimpleNamespace(global_pool="avg", output_fmt="NHWC"), "mean_nhwc"),
        (SimpleNamespace(), "mean"),
    ],
)
def test_how_timm_pools(network, token):
    assert pooled_by(network) == token


@pytest.fixture
def theirs(tmp_path):
    """A model of transformers, as it writes it for the Hub."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
    network = transformers.ViTModel(transformers.ViTConfig(**sizes, image_size=8, patch_size=4)).eval()
    network.save_pretrained(tmp_path / "theirs")
    images = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.2, 0.2, 0.2], "size": {"height": 8, "width": 8}}
    (tmp_path / "theirs/preprocessor_config.json").write_text(json.dumps(images))
    return network, tmp_path / "theirs"


def test_a_model_of_transformers(theirs):
    network, folder = theirs
    x = torch.rand(2, 3, 8, 8)
    loaded = ModelSource(hub=str(folder), token="cls", layers="network.*.*").load()
    with torch.no_grad():
        expected = network(pixel_values=x).last_hidden_state[:, 0]
        torch.testing.assert_close(loaded.module.eval()(x), expected)
    assert loaded.normalization == ((0.5, 0.5, 0.5), (0.2, 0.2, 0.2))
    assert loaded.image_size == 8
    with pytest.raises(ValueError, match=r"`backbone` to return .*, but got \(2, 5, 12\)\. .* `token`: 'cls'"):
        ModelSource(hub=str(folder)).load().module(x)


PREPROCESSORS = {
    "as they are": ({"do_normalize": False}, ((0.0,) * 3, (1.0,) * 3)),
    "scalars": ({"image_mean": 0.0, "image_std": 0.25}, ((0.0,) * 3, (0.25,) * 3)),
    "a rounded factor": ({"rescale_factor": 0.00392}, ((0.5,) * 3, (0.2,) * 3)),
    "all said": ({"do_normalize": True, "do_rescale": True}, ((0.5,) * 3, (0.2,) * 3)),
    "not known": ({"image_mean": None}, None),
}
UNFIT = {
    "not rescaled": ({"do_rescale": False}, r"pixels in \[0, 1\], with do_rescale True, but got False. Give `mean`"),
    "another factor": ({"rescale_factor": 1 / 127.5}, r"with rescale_factor 0.0039\d*, but got 0.0078"),
    "an offset": ({"rescale_offset": True}, "with rescale_offset False, but got True"),
    "a text": ({"image_mean": "grey"}, "a number, or one per channel, as image_mean, but got 'grey'"),
    "texts": ({"image_std": ["a", "b", "c"]}, "as image_std, but got"),
}


def with_images(folder, changes):
    path = folder / "preprocessor_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return ModelSource(hub=str(folder), token="cls")


@pytest.mark.parametrize(("changes", "normalization"), PREPROCESSORS.values(), ids=PREPROCESSORS.keys())
def test_the_normalization_of_transformers(theirs, changes, normalization):
    assert with_images(theirs[1], changes).load().normalization == normalization


@pytest.mark.parametrize(("changes", "message"), UNFIT.values(), ids=UNFIT.keys())
def test_a_preprocessor_that_does_not_fit_is_refused_unless_the_moments_are_given(theirs, changes, message):
    source = with_images(theirs[1], changes)
    with pytest.raises(ValueError, match=f"preprocessor_config.json of '.*' to have .*{message}"):
        source.load()
    source.mean, source.std = [0.5], [0.25]
    assert source.load().normalization == ((0.5,), (0.25,))


def test_weights_that_transformers_would_draw_at_random_are_refused(theirs):
    _, folder = theirs
    state = load_file(folder / "model.safetensors")
    kept = {key: value for key, value in state.items() if not key.startswith("pooler.")}
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    ModelSource(hub=str(folder), token="cls").load()  # what the pooler returns is not observed
    lost = next(key for key in kept if key.startswith(("encoder", "layers")))
    save_file(
        {key: value for key, value in kept.items() if key != lost}, folder / "model.safetensors", {"format": "pt"}
    )
    with pytest.raises(ValueError, match=r"theirs' to have all weights, but 1 are missing, such as '.*'"):
        ModelSource(hub=str(folder), token="cls").load()


def test_without_transformers_an_error_names_the_extra(theirs, monkeypatch, capsys):
    _, folder = theirs
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ImportError, match=r"transformers, as '.*theirs' .*lightning-ssl-geometry\[transformers"):
        ModelSource(hub=str(folder)).load()
    with pytest.raises(SystemExit):
        main(["diagnose", f"hf:{folder}", "--images", "."])
    assert capsys.readouterr().err.startswith("ssl-geometry: error: Expected transformers, as ")


def test_code_in_the_folder_is_not_run(theirs):
    _, folder = theirs
    (folder / "evil.py").write_text("raise SystemExit('it ran')")
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "evil", "auto_map": {"AutoConfig": "evil.Config", "AutoModel": "evil.Model"}}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="to hold a model of transformers, but: "):
        ModelSource(hub=str(folder)).load()
