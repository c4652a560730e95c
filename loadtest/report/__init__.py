"""What is made of what was measured: figures, the tables of pages, plots."""
