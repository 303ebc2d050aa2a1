"""The neural kernel: Gram matrices of a network's Jacobian, and their closed forms for one hidden layer."""
