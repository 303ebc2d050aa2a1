"""The neural kernel: Gram matrices of the network's Jacobian, chunk by chunk, and what is known in closed form."""
