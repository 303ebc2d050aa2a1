"""Groups that act on images: actions, equivariance errors, fibers, generators of rotations."""
