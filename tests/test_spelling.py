"""The names that a misspelt name may mean."""

import pytest

from lightning_ssl_geometry.spelling import did_you_mean, near

KNOWN = [
    "SimCLRModule",
    "VICRegModule",
    "--trainer.max_epochs",
    "--trainer.max_steps",
    "near",
    "Near",
    "image",
    "label",
]


@pytest.mark.parametrize(
    ("wrong", "found"),
    {
        "SimCLRModul": ["SimCLRModule"],  # a letter is missing
        "VICREGMODULE": ["VICRegModule"],  # capitals do not count
        "--trainer.max_epoch": ["--trainer.max_epochs"],  # an abbreviation
        "--trainer.max_ep": ["--trainer.max_epochs"],  # one name begins so, but another has a more similar length
        "sim": ["SimCLRModule"],
        "--trainer.max": ["--trainer.max_steps"],  # two names begin so: the more similar one
        "lable": ["label"],
        "NEAR": ["near"],  # of two names that differ in capitals, the first
        "qqqqqqqq": [],
        "": [],
    }.items(),
)
def test_the_nearest_name(wrong, found):
    assert near(wrong, KNOWN, most=1) == found
    assert did_you_mean(wrong, KNOWN) == "".join(f" Did you mean `{each}`?" for each in found)


def test_the_nearest_names_come_first_and_only_so_many():
    names = ["layer1", "layer2", "layer3", "layer4", "fc"]
    assert near("layer4x", names)[0] == "layer4"
    assert [len(near("layer", names, most=most)) for most in (1, 2, 3, 5)] == [1, 2, 3, 4]
    assert near("near", ["Near", "near"], most=2) == ["Near", "near"]
    assert near("fc", ["fc", "fc"]) == ["fc"]
    assert near("fc", iter(names)) == ["fc"]
