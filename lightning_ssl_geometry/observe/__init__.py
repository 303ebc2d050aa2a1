"""Collect the tensors of a step by name (h, z, label, ...), for the monitor, the probes and a diagnosis."""
