"""Turn a step into named tensors (h, z, label, ...), for the monitor, the probes and a diagnosis."""
