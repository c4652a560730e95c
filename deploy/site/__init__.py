"""The site: the pages of docs by mkdocs, with llms.txt."""
