"""Running functions over blocks of rows, on threads, processes or a cluster, and what it will cost."""
