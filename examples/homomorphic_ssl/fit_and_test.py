"""Fit as `ssl-geometry fit` does, with the same arguments, and score the result on the test set in the same run."""

import sys

from lightning_ssl_geometry.cli import lightning_cli

if __name__ == "__main__":
    cli = lightning_cli(sys.argv[1:])
    cli.trainer.test(cli.model, datamodule=cli.datamodule, verbose=False)
