"""Failures: decides whether the error of a diagnostic or probe is raised or becomes a warning."""

__all__ = ["DiagnosticError", "Failures", "OnError", "diagnostic_named"]

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, get_args

from torchmetrics import Metric

from lightning_ssl_geometry.checks import one_of
from lightning_ssl_geometry.observe.host import NotFiniteError
from lightning_ssl_geometry.observe.moment import Moment

OnError = Literal["warn", "raise"]


class DiagnosticError(ValueError):
    """An error of one diagnostic before the first step. It is the `__cause__` of this error."""


class _ToldError(ValueError):
    """An error whose message already names the callback, the stage and the step."""


class Failures:
    """Records which diagnostics of a callback failed, and raises their errors or gives warnings.

    A stage is "train", "val", "test" or "probe". Before the first successful step of a stage, an error is raised at
    once, because the settings are probably wrong. If `on_error` is "warn", a later error becomes a warning, and the
    result is NaN. With "warn", an h or z that is not finite gives only a warning, even in the first step. If `on_error`
    is "raise", a later error is raised at once, or by :meth:`raise_pending` if errors are postponed. A fit of the
    Trainer postpones errors until the checkpoints of the epoch are saved.

    Args:
        on_error: "warn" or "raise".
    """

    def __init__(self, on_error: OnError) -> None:
        one_of(get_args(OnError), on_error=on_error)
        self.on_error = on_error
        self._proven: set[str] = set()
        self._failed: dict[str, dict[str, str]] = {}  # stage -> diagnostic -> the error
        self._pending: Exception | None = None
        self._postpones, self._keeps = False, False

    def restart(self, postpones: bool) -> None:
        """Forget all failures before the next run. `postpones` says whether this run postpones its errors."""
        self._proven, self._failed, self._pending, self._postpones = set(), {}, None, postpones

    @contextmanager
    def keeping(self) -> Iterator[None]:
        """Keep the errors in this block for :meth:`raise_pending`."""
        self._keeps = True
        try:
            yield
        finally:
            self._keeps = False

    def prove(self, stage: str) -> None:
        """Record that a step of a stage has succeeded."""
        self._proven.add(stage)

    def begin(self, stage: str) -> None:
        """Forget the failures of a stage."""
        self._failed[stage] = {}

    def failed(self, stage: str, diagnostic: str = "") -> bool:
        """Whether a diagnostic or the whole step has failed since :meth:`begin` was called for the stage."""
        return bool({diagnostic, ""} & self._failed.get(stage, {}).keys())

    def reason(self, stage: str, diagnostic: str) -> str:
        """Return the error of a diagnostic or of the whole step since :meth:`begin`, or "" if there was none."""
        errors = self._failed.get(stage, {})
        return errors.get(diagnostic) or errors.get("", "")

    @contextmanager
    def caught(
        self, moment: Moment, who: str, stage: str, diagnostic: str = "", lost: str = "The readout is NaN"
    ) -> Iterator[None]:
        """Turn an error inside the block into a ValueError or a warning: see :class:`Failures`.

        `moment` and `who`, the name of the callback, are for the message. `diagnostic` is the name of the diagnostic,
        or "" if the block computes all of them. `lost` says in the warning what happens to the result.
        """
        try:
            yield
        except _ToldError:
            raise
        except Exception as error:
            self._failed.setdefault(stage, {}).setdefault(diagnostic, _cause(error))
            named = f", diagnostic {diagnostic!r}" if diagnostic else ""
            self._tell(error, moment, f"{who}{named}, stage {stage!r}", stage=stage, lost=lost)

    def raise_pending(self) -> None:
        """Raise the first error that was postponed to the end of the epoch, if there is one."""
        error, self._pending = self._pending, None
        if error is not None:
            raise error

    def elsewhere(self, message: str) -> None:
        """Record that another rank failed. If `on_error` is "raise", the fit then ends on this rank, too."""
        if self.on_error == "raise":
            self._pending = self._pending or ValueError(message)

    def _tell(self, error: Exception, moment: Moment, who: str, *, stage: str, lost: str) -> None:
        message = f"{who}, {moment}: {_cause(error)}".rstrip(".") + "."
        raises = self.on_error == "raise"
        unproven = stage not in self._proven and not (isinstance(error, NotFiniteError) and not raises)
        if not (raises and self._keeps) and (unproven or (raises and not self._postpones)):
            raise _ToldError(message) from error
        if not raises:
            warnings.warn(f"{message} {lost}, and the run goes on (`on_error='warn'`).", stacklevel=2)
            return
        failure = ValueError(message)
        failure.__cause__ = error
        self._pending = self._pending or failure
        if not self._keeps:
            follows = "The fit ends with this error once the checkpoints of the epoch are saved (`on_error='raise'`)."
            warnings.warn(f"{message} {follows}", stacklevel=2)


@contextmanager
def diagnostic_named(name: str, metric: Metric) -> Iterator[None]:
    """Turn an error in the block into a :class:`DiagnosticError` that names a diagnostic."""
    try:
        yield
    except Exception as error:
        raise DiagnosticError(f"diagnostic {name!r} ({type(metric).__name__})") from error


def _cause(error: Exception) -> str:
    text = str(error) or "no message"
    return text if isinstance(error, ValueError) else f"{type(error).__name__}: {text}"
