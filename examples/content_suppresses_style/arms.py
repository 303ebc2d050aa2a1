"""The arms of each of the recipe's tables and figures: what each adds to the command line, and its YAML files."""

from collections.abc import Callable, Iterator
from pathlib import Path

from recipe import UNTRAINED

HERE = Path(__file__).parent
Arms = Iterator[tuple[str, list[str]]]
MODEL, DATA = "--model.init_args.", "--data.init_args."
LOSS = f"{MODEL}loss.init_args."
RULES = "lightning_ssl_geometry.losses."
SPHERE = [f"{DATA}space=sphere", f"{DATA}conditional=von_mises_fisher", f"{DATA}concentration=10.0"]
NORMALIZED = [f"{LOSS}normalize=true", f"{LOSS}similarity=dot"]
UNNORMALIZED = [f"{LOSS}normalize=false", f"{LOSS}similarity=distance"]
WITHOUT_ITSELF = [f"{LOSS}include_self=false"]
STANDARDIZED = [f"{MODEL}standardize=true"]
# Standard deviations of the changes of content and style: the precisions 25 and 5 of AnInfoNCE, then to exact content.
CHANGES = ((0.2, 0.447), (0.3, 0.3), (0.1, 0.3), (0.03, 0.3), (0.0, 0.3))
RATIOS = (1.0, 0.3, 0.1, 0.03, 0.01, 0.001)  # of the temperatures, tau_c / tau_s


def two_temperatures(dim: int, tau_c: float, tau_s: float) -> list[str]:
    """Arguments for a temperature of the first half of the dimensions and one of the others."""
    chosen = {"dim": dim, "tau_c": tau_c, "tau_s": tau_s}
    arguments = [f"{LOSS}temperature.init_args.{name}={value}" for name, value in chosen.items()]
    return [f"{LOSS}temperature={RULES}ContentStyleTemperature", *arguments]


def table1() -> Arms:
    """Table 1: what is trained, on the box and on the sphere, and the same encoders untrained."""
    yield "box", []
    yield "box, untrained", UNTRAINED
    same = [f"{LOSS}temperature=1.0", f"{LOSS}form=CL_ICA", "--trainer.max_epochs=20"]  # as the box has it
    cosines = [f"{LOSS}normalize=true", f"{LOSS}similarity=dot"]
    words = [*same, *cosines, f"{DATA}concentration=0.05"]
    yield "sphere", words
    yield "sphere, untrained", [*words, *UNTRAINED]


def linear() -> Arms:
    """Fig. 1 left: a linear encoder."""
    yield "d_c = 0", [f"{DATA}content_dim=0"]
    yield "d_c = 2", [f"{DATA}content_dim=2"]
    yield "d_c = 4", []
    yield "tau_c < tau_s", two_temperatures(8, 0.1, 1.0)
    yield "tau_c > tau_s", two_temperatures(8, 10.0, 1.0)
    yield "d_c = 4, without itself", WITHOUT_ITSELF
    yield "tau_c < tau_s, without itself", [*WITHOUT_ITSELF, *two_temperatures(8, 0.1, 1.0)]
    yield "untrained", UNTRAINED


def box() -> Arms:
    """Fig. 1 middle."""
    yield "d_c = 0", [f"{DATA}content_dim=0"]
    yield "one tau", []
    yield "tau_c < tau_s", two_temperatures(6, 0.1, 10.0)
    yield "tau_c > tau_s", two_temperatures(6, 10.0, 1.0)
    yield "one tau, without itself", WITHOUT_ITSELF
    yield "one tau, standardized", STANDARDIZED
    yield "tau_c < tau_s, standardized", [*STANDARDIZED, *two_temperatures(6, 0.1, 10.0)]
    yield "untrained", UNTRAINED


def sphere() -> Arms:
    """Fig. 1 right."""
    yield "d_c = 0", [f"{DATA}content_dim=0"]
    yield "one tau", []
    yield "tau_c < tau_s", two_temperatures(6, 0.01, 0.1)
    yield "tau_c < tau_s, w/o norm", [*two_temperatures(6, 0.01, 1.0), *UNNORMALIZED]
    yield "one tau, w/o norm", [f"{LOSS}temperature=1.0", *UNNORMALIZED]
    yield "untrained", UNTRAINED


def crossed() -> Arms:
    """Every space with every loss; the two temperatures of an arm differ by the same factor in all arms."""
    scales = {"free": ([], 1.0), "standardized": (STANDARDIZED, 1.0), "normalized": (NORMALIZED, 0.1)}
    for space, law in (("box", []), ("sphere", SPHERE)):
        for contrast, negatives in (("with itself", []), ("without itself", WITHOUT_ITSELF)):
            for scale, (words, tau) in scales.items():
                same = [*law, *negatives, *words]
                yield f"{space}, {contrast}, {scale}, one tau", [*same, f"{LOSS}temperature={tau}"]
                yield f"{space}, {contrast}, {scale}, tau_c < tau_s", [*same, *two_temperatures(6, 0.1 * tau, tau)]
        yield f"{space}, untrained", [*law, *UNTRAINED]


def changes(content: float, style: float) -> str:
    return f"changes {content:g} and {style:g}"


def sweep() -> Arms:
    """A linear encoder with ratios of its temperatures from 1 to 0.001."""
    places = {"box, with itself": ([], 1.0), "box, without itself": (WITHOUT_ITSELF, 1.0)}
    places |= {"sphere, without itself": ([*SPHERE, *NORMALIZED, *WITHOUT_ITSELF], 0.1)}
    for place, (words, tau) in places.items():
        for ratio in RATIOS:
            yield f"{place}, {ratio:g}", [*words, *two_temperatures(8, ratio * tau, tau)]


def rules() -> Arms:
    """Temperatures of Prop. 3 as printed, by its proof, and estimated, where content changes less than style."""
    law = [f"{DATA}conditional=normal", f"{DATA}style_scale=0.3", *UNNORMALIZED, *STANDARDIZED]
    for sigma in (0.1, 0.03):
        known = {"dim": 6, "sigma_c": sigma, "sigma_s": 0.3, "content_dim": 3}
        printed = [f"{LOSS}temperature.init_args.{name}={value}" for name, value in known.items()]
        temperatures = {
            "one tau": [f"{LOSS}temperature=1.0"],
            "sqrt(alpha)": [f"{LOSS}temperature={RULES}EqualizingTemperature", *printed],
            "alpha": two_temperatures(6, (sigma / 0.3) ** 2, 1.0),
            "estimated": [
                f"{LOSS}temperature={RULES}GradientSpectrumTemperature",
                f"{LOSS}temperature.init_args.dim=6",
            ],
        }
        for name, words in temperatures.items():
            yield f"sigma_c {sigma}, {name}", [*law, f"{DATA}content_scale={sigma}", *words]
        yield f"sigma_c {sigma}, untrained", [*law, f"{DATA}content_scale={sigma}", *UNTRAINED]


def learned() -> Arms:
    """Temperatures that are learned, for several changes of content and style."""
    yield "one tau", [f"{LOSS}temperature=0.1", f"{MODEL}loss_lr=null"]
    for content, style in CHANGES:
        near = [] if content else [f"{DATA}norm_tolerance=null"]
        yield changes(content, style), [f"{DATA}content_scale={content}", f"{DATA}style_scale={style}", *near]
    yield "untrained", UNTRAINED


def classes() -> Arms:
    """Lemma 1: content that is a class."""
    untrained = [f"{MODEL}optimizer.init_args.lr=0.0", "--trainer.max_epochs=2"]
    for content, words in {"one per class": [], "many per class": [f"{DATA}spread=1.0"]}.items():
        yield content, words
        yield f"{content}, untrained", [*words, *untrained]


def table2(size: str) -> Arms:
    """Table 2 and Fig. 2, with P outputs."""
    p = {"laptop": 64, "paper": 256}[size]
    free = [*UNNORMALIZED, *STANDARDIZED]
    yield "regular", []
    yield "w/o norm", [*free, f"{LOSS}temperature=1.0"]
    yield "w/o norm + diff. tau", [*free, *two_temperatures(p, 0.7, 1.0)]
    yield "w/o norm, tau = P", [*free, f"{LOSS}temperature={p}.0"]
    yield "w/o norm + diff. tau, tau = P", [*free, *two_temperatures(p, 0.7 * p, 1.0 * p)]
    yield "w/o norm, dot, tau = P", [*free, f"{LOSS}similarity=dot", f"{LOSS}temperature={p}.0"]


def direct_clr() -> Arms:
    """Appendix E, and SimCLR with the same optimizer."""
    yield "DirectCLR", []
    optimizer = {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.1}  # as in direct_clr.yaml
    words = [f"{MODEL}optimizer.init_args.{name}={value}" for name, value in optimizer.items()]
    yield "SimCLR", [f"{MODEL}optimizer=torch.optim.SGD", *words, f"{DATA}batch_size=64"]


ARMS: dict[str, Callable[[], Arms]] = {
    **{"table1": table1, "linear": linear, "sweep": sweep, "box": box, "sphere": sphere, "crossed": crossed},
    **{"crossed_wide": crossed, "rules": rules, "learned": learned, "classes": classes, "direct_clr": direct_clr},
}


def settings(what: str, size: str) -> dict[str, list[str]]:
    """Names of the arms -> what each adds to the command line."""
    return dict(table2(size) if what == "table2" else ARMS[what]())


def configs(what: str, size: str, arm: str) -> list[Path]:
    """The YAML files of an arm, in their order."""
    if what == "table1":
        names = ["laptop", "table1", *(["sphere"] if arm.startswith("sphere") else [])]
    elif what == "table2":
        names = [{"laptop": "cifar10", "paper": "paper"}[size]]
    elif what == "direct_clr":
        names = ["cifar10", *(["direct_clr"] if arm == "DirectCLR" else [])]
    else:
        after = {"box": [], "learned": ["sphere", "learned"], "sweep": ["linear"], "rules": ["sphere"]}
        after |= {"crossed_wide": ["crossed", "wide"]}
        names = ["laptop", *after.get(what, [what])]
    return [HERE / f"{name}.yaml" for name in names]
