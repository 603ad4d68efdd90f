"""The peak of the memory that a function takes, within the process of the tests."""

import tracemalloc


def traced_peak(work, attempts=2):
    """Bytes of Python and NumPy at the peak of `work()`: the least of several calls.

    The memory of a process is traced in all its threads, and those that Dask has left there take some now and then, so
    that a single call may measure too much, but never too little.
    """
    peaks = []
    for _ in range(attempts):
        tracemalloc.start()
        try:
            work()
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    return min(peaks)
