"""Run `python -m lightning_ssl_geometry ...`: the same as `ssl-geometry ...`."""

from lightning_ssl_geometry.cli import main

if __name__ == "__main__":
    main()
