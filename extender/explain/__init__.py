"""Parts of the text of causes for users."""
