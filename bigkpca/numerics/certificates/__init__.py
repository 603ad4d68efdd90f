"""Certificates: how wrong a fit can be, as bounds, estimates and one word of trust for each component."""
