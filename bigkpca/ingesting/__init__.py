"""Files of other formats into datasets."""
