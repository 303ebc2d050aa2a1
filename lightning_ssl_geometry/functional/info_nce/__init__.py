"""InfoNCE: the loss in its forms, tile by tile, its upper bound and its terms."""
