"""What the tests of comparisons ask for."""

COMPONENTS, SIZES = 6, (30, 90)
FEW = {"n_components": 6, "methods": ["nystroem/kmeans", "rff"], "sizes": [30], "seeds": 1}
