"""Contracts that every diagnostic and every method of this package keeps, as functions for classes of your own."""

__all__ = ["DIAGNOSTIC_CONTRACTS", "METHOD_CONTRACTS", "check_diagnostic", "check_method"]

from lightning_ssl_geometry.testing.diagnostic import DIAGNOSTIC_CONTRACTS, check_diagnostic
from lightning_ssl_geometry.testing.method import METHOD_CONTRACTS, check_method
