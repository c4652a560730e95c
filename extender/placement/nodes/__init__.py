"""The Nodes that a Pod may or may not get."""
