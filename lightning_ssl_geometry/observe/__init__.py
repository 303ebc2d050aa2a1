"""A batch becomes an observation: the one way of the monitor, the probes and a diagnosis."""
