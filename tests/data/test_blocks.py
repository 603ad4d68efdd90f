"""Blocks, tiles and samples: the numbers of the rules, and that no row is lost."""

from hypothesis import given
from hypothesis import strategies as st

from bigkpca.data.blocks import fit_block_rows, output_block_rows, power_of_two, sample_rows, split, tile_rows


def test_blocks_of_a_fit_are_whole_chunks_and_a_power_of_two_where_they_can_be():
    assert [power_of_two(value) for value in (0, 1, 2, 3, 4, 1023, 1024)] == [1, 1, 2, 2, 4, 512, 1024]
    counts = 1, 60_000, 131_071, 131_072, 600_000, 1_048_576, 60_000_000
    assert [fit_block_rows(n, 1) for n in counts] == [4096, 4096, 4096, 8192, 32_768, 65_536, 65_536]
    assert [fit_block_rows(60_000, grain) for grain in (1000, 3000, 5000, 100_000)] == [4000, 3000, 5000, 100_000]
    assert [fit_block_rows(60_000, *rule) for rule in ((1000, 2400), (7, 1))] == [2000, 7]


def test_blocks_of_output_and_samples_are_bounded_in_rows_and_bytes():
    for n, row_bytes, rows in (
        (60_000, 200, 4096),  # the block of the fit
        (60_000_000, 200, 16_384),  # 4 MB of output
        (60_000_000, 8000, 2048),  # never less than a tile
    ):
        assert output_block_rows(n, 1, row_bytes) == rows
    for n, d, size, rows in (
        (100, 10, 50, 100),
        (10**6, 784, 1000, 20_000),
        (10**6, 1600, 1000, 10_000),  # 64 MB as float32
        (10**6, 10**8, 1000, 1000),  # but never fewer than the landmarks
    ):
        assert sample_rows(n, d, size) == rows


@given(n=st.integers(0, 10_000), rows=st.integers(1, 3000))
def test_blocks_cover_every_row_once_in_order(n, rows):
    blocks = split(n, rows)
    assert [block.number for block in blocks] == list(range(len(blocks)))
    assert [row for block in blocks for row in range(block.start, block.stop)] == list(range(n))
    assert all(len(block) == rows for block in blocks[:-1])
    assert all(0 < len(block) <= rows for block in blocks)


@given(d=st.integers(1, 10**5), D=st.integers(1, 10**4), itemsize=st.sampled_from([4, 8]))
def test_a_tile_is_the_tallest_power_of_two_within_32_megabytes(d, D, itemsize):
    sizes = (784, 1000, 4), (784, 2000, 8), (784, 4000, 8), (10**6, 10, 4)
    assert [tile_rows(*size) for size in sizes] == [2048, 2048, 1024, 16]
    rows = tile_rows(d, D, itemsize)
    assert 16 <= rows <= 2048
    assert power_of_two(rows) == rows
    assert rows == 16 or rows * max(d, D) * itemsize <= 2**25
    assert rows == 2048 or 2 * rows * max(d, D) * itemsize > 2**25
