"""What is on disk: datasets, models, arrays written block by block, and how they get there whole."""
