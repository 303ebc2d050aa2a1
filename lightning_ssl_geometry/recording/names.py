"""Check names that become parts of logged names and of file paths."""

__all__ = ["check_name"]

_FORBIDDEN = ("/", "\\")
_TAKEN = "rows_seen"
_LONGEST = 100


def check_name(argument: str, *names: str) -> None:
    """Raise a ValueError if one of `names` cannot be part of a path.

    A name must not be empty, ".", "..", "rows_seen" or longer than 100 characters. It must have no path separator and
    no control character. `argument` is the name of the checked argument in the message.
    """
    for name in names:
        if not isinstance(name, str):
            raise ValueError(f"Expected `{argument}` to be texts, but got {name!r}.")
        if name == _TAKEN:
            raise ValueError(f"Expected `{argument}` to be names other than {_TAKEN!r}, a file of every stage.")
        if len(name) > _LONGEST:
            raise ValueError(
                f"Expected `{argument}` to be names of at most {_LONGEST} characters, but got {len(name)}."
            )
        if not name or name in (".", "..") or not name.isprintable() or any(each in name for each in _FORBIDDEN):
            raise ValueError(
                f"Expected `{argument}` to be names without '/', '\\\\' or control characters, but got {name!r}."
            )
