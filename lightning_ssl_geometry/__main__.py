"""Run the command `ssl-geometry` as `python -m lightning_ssl_geometry`."""

import os
import sys


def _run() -> None:
    if not sys.flags.safe_path and sys.path[:1] in ([""], [os.getcwd()]):
        sys.path.append(sys.path.pop(0))  # `-m` puts the current folder before what is installed
    from lightning_ssl_geometry.cli import main

    main()


if __name__ == "__main__":
    _run()
