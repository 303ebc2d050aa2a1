"""Write what a run is and what was measured in it to the run's folder, and to its loggers."""
