"""The neural kernel, the Gram matrix of a network's Jacobian, and its closed forms for one hidden layer."""
