"""InfoNCE: the loss in the forms of several papers, its upper bound, and its split into two terms."""
