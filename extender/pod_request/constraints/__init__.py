"""What a Pod demands of its Node."""
