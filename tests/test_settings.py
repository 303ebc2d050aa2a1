"""What a constructor says of a keyword that neither it nor those to which it hands its settings know."""

import pytest
from torch import nn

import lightning_ssl_geometry as sslg

PARTS = (nn.Linear(5, 4), nn.Linear(4, 3))
CALLS = {
    "SimCLRModule": (lambda: sslg.SimCLRModule(*PARTS, optimiser=1), "'optimiser'. Did you mean 'optimizer'?"),
    "BYOLModule": (lambda: sslg.BYOLModule(*PARTS, PARTS[1], warmup=1), "'warmup'. Did you mean 'warmup_epochs'?"),
    "GeometryMonitor": (lambda: sslg.GeometryMonitor(tapps=1), "'tapps'. Did you mean 'taps'?"),
    "LinearProbe": (lambda: sslg.LinearProbe(2, tapps=1), "'tapps'. Did you mean 'taps'?"),
    "InfoNCELoss": (lambda: sslg.InfoNCELoss(normalise=True), "'normalise'. Did you mean 'normalize'?"),
    "Stationarity": (lambda: sslg.Stationarity(contrast=9), "'contrast'. Did you mean 'contrast_size'?"),
    "EquivarianceError": (lambda: sslg.EquivarianceError(layer=[]), "'layer'. Did you mean 'layers'?"),
    "LatentDGPDataModule": (lambda: sslg.LatentDGPDataModule(spaces=1), "'spaces'. Did you mean 'space'?"),
    "DigitsDataModule": (lambda: sslg.DigitsDataModule(zebra=1), "'zebra'"),
    "LiftingConv2d": (
        lambda: sslg.nn.equivariant.LiftingConv2d(2, 3, kernel_size=3, effective_size=3, strides=2),
        "'strides'. Did you mean 'stride'?",
    ),
    "StepInvariance": (lambda: sslg.StepInvariance(columns=1), "'columns'"),
    "ContrastiveFlowModule": (lambda: sslg.ContrastiveFlowModule(9, backbone=PARTS[0]), "'backbone'"),
    "DirectCLRModule": (lambda: sslg.DirectCLRModule(PARTS[0], 2, projector=PARTS[1]), "'projector'"),
    "KNNProbe": (lambda: sslg.KNNProbe(augment=None), "'augment'"),
    "LogSpectrum": (lambda: sslg.LogSpectrum(centre=True), "'centre'. Did you mean 'center'?"),
    "Uniformity": (lambda: sslg.Uniformity(zebra=1), "'zebra'"),
}


@pytest.mark.parametrize("name", CALLS)
def test_the_error_of_an_unknown_keyword_names_the_class_that_was_called(name):
    call, said = CALLS[name]
    with pytest.raises(TypeError) as caught:
        call()
    assert str(caught.value) == f"{name}() got an unexpected keyword argument {said}"


def test_it_names_the_users_own_class_and_leaves_other_errors_alone():
    class Mine(sslg.SimCLRModule): ...

    def loss(temperature): ...

    class Other(sslg.SimCLRModule):
        default_loss = staticmethod(lambda: loss(warmup_epochs=1))

    with pytest.raises(TypeError, match=r"^Mine\(\) got .* 'los'\. Did you mean 'loss'\?$"):
        Mine(*PARTS, los=None)
    with pytest.raises(TypeError, match=r"^Mine\(\) got multiple values for argument 'backbone'$"):
        Mine(*PARTS, backbone=None)
    with pytest.raises(TypeError, match=r"loss\(\) got an unexpected keyword argument 'warmup_epochs'$"):
        Other(*PARTS, warmup_epochs=1.0)
