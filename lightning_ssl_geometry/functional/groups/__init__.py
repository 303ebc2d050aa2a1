"""Group actions on images, equivariance errors, fibers of feature maps and generators of transformations."""
