"""Tables of columns of several types, and what makes rows of numbers of them."""
