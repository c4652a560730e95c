"""Makes the reports of measurements: figures, the tables of pages, and plots."""
