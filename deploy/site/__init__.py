"""The site: mkdocs builds the site from the pages of docs, and a hook adds llms.txt."""
