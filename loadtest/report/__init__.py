"""Reports of measurements: figures, the tables of pages, plots."""
