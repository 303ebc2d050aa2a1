"""Turn a batch into an observation, for the monitor, the probes and a diagnosis."""
