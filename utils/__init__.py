"""Shared by all other packages: errors, language tags, files, and the code of saved folders."""
