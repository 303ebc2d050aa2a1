"""Group actions on images, equivariance errors, fibers and generators of rotations."""
