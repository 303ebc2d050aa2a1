"""Diagnostics around any training loop, without Lightning's Trainer."""
