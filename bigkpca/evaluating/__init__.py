"""How wrong a model is, by exact rows, by pre-images, and by cross-validation."""
