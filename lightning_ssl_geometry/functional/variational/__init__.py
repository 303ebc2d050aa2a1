"""The variational form of contrastive losses (Calder & Lee 2025): loss, first variation, second variation."""
