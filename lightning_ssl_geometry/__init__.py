"""Train contrastive self-supervised models with PyTorch Lightning and see the geometry of what they learn.

This module offers all public names of its submodules, and imports each name at its first use:

    import lightning_ssl_geometry as sslg

    sslg.HSSLModule  # lightning_ssl_geometry.methods.HSSLModule
    sslg.functional.effective_rank

`sslg.diagnose` is the submodule; the function of this name is `sslg.diagnose.diagnose`.
"""

__all__ = ["__version__"]

__version__ = "0.1.0.dev0"

_ROOMS = (
    "methods",
    "losses",
    "diagnostics",
    "callbacks",
    "measuring",
    "data",
    "views",
    "nn",
    "loggers",
    "report",
    "diagnose",
)
_FUNCTIONS_ONLY = ("report", "diagnose")
_found: dict[str, str] = {}  # name -> the room that it is in; read from the rooms' files when first needed
_parts_found: list[str] = []
_old: dict[str, str] = {}  # the same of names that will be removed
_suggested: dict[str, str] = {}  # wrong name -> suggestion: jsonargparse asks for the same wrong name hundreds of times


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name in _parts():
        return import_module(f"{__name__}.{name}")
    if room := _names().get(name) or _old.get(name):
        return getattr(import_module(f"{__name__}.{room}"), name)
    # With a name of its own, Python does not add its suggestion to ours.
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}{_near(name)}", name=name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_parts(), *_names()})


def _parts() -> list[str]:
    from pkgutil import iter_modules

    if not _parts_found:
        _parts_found.extend(part.name for part in iter_modules(__path__) if not part.name.startswith("_"))
    return _parts_found


def _names() -> dict[str, str]:  # read from the source, since importing a submodule imports torch
    for room in _ROOMS if not _found else ():
        public, old = _declared(room)
        kept = [name for name in public if room not in _FUNCTIONS_ONLY or name[0].islower()]
        _found.update((name, room) for name in kept if name not in _parts())
        _old.update((name, room) for name in old if room not in _FUNCTIONS_ONLY)
    return _found


def _declared(room: str) -> tuple[list[str], list[str]]:
    import ast
    from importlib.util import find_spec

    spec = find_spec(f"{__name__}.{room}")
    source = spec.loader.get_source(spec.name) if spec and spec.loader else None  # type: ignore[attr-defined]
    public: list[str] = []
    old: list[str] = []
    for node in ast.parse(source or "").body:
        match node:
            case ast.Assign(targets=[ast.Name(id="__all__")], value=value):
                public = list(ast.literal_eval(value))
            case ast.Assign(targets=[ast.Name(id="__getattr__")], value=ast.Call(args=[_, names])):
                old = list(ast.literal_eval(names))
    return public, old


def _near(name: str) -> str:
    if name.startswith("_"):
        return ""
    if name not in _suggested:
        from lightning_ssl_geometry.spelling import near

        known = [*_names(), *_parts()]
        _suggested[name] = "".join(f". Did you mean: {each!r}?" for each in near(name, known, most=1))
    return _suggested[name]
