"""What all rooms share: errors, language tags, files, and the code of saved folders."""
