"""Pictures of rows."""

import base64
import io

import numpy as np
import pytest
from matplotlib import colormaps

import bigkpca
from bigkpca.errors import SpecError
from bigkpca.plots.pictures import PictureFrame, image_shape, recorded_shape


def test_pictures_show_rows():
    from matplotlib.image import imread

    frame = PictureFrame((2, 3), 0, 10)
    rows = np.array([[0, 5, 10, 0, 0, 0], [10, 10, 10, 20, -5, 0]])
    uri = frame.strip(rows, rows[::-1])
    image = imread(io.BytesIO(base64.b64decode(uri.removeprefix("data:image/png;base64,"))))
    assert image.shape == (16 + 1 + 16, 24 + 1 + 24, 4)
    np.testing.assert_allclose(image[:16:8, :24:8, 0], np.array([[0, 0.5, 1], [0, 0, 0]]), atol=1 / 255)
    np.testing.assert_allclose(image[17::8, :24:8, 0], np.array([[1, 1, 1], [1, 0, 0]]), atol=1 / 255)
    assert image[16, 0, 3] == 0  # a gap
    assert image[0, 0, 3] == 1
    large = PictureFrame((200, 100, 3), 0, 1)
    assert large.pictures(np.zeros((1, 60_000))).shape == (1, 67, 34, 3)
    flat = PictureFrame.of((1, 2), np.full((4, 2), 3.0))
    assert (flat.black, flat.white) == (3, 4)
    sparse = PictureFrame.of((1, 2), np.eye(1, 100_000).reshape(-1, 2))
    assert (sparse.black, sparse.white) == (0, 1)


def test_greys_have_the_colours_of_a_map_and_colours_stay():
    frame = PictureFrame((24, 24), 0, 255)
    row = np.arange(576.0)[None] % 256
    sheet = frame.sheet(row, cmap="viridis")
    expected = (255 * colormaps["viridis"](row.astype(int).reshape(24, 24))).round()
    np.testing.assert_array_equal(sheet, expected)
    colored = PictureFrame((24, 24, 3), 0, 255)
    rows = np.random.default_rng(0).integers(0, 256, (1, 24 * 24 * 3)).astype(float)
    np.testing.assert_array_equal(colored.sheet(rows, cmap="viridis")[..., :3], rows.reshape(24, 24, 3))


def test_large_pictures_keep_the_pixels_that_are_asked_for():
    rows = np.zeros((1, 600 * 300))
    assert PictureFrame((600, 300), 0, 1).sheet(rows).shape == (86, 43, 4)
    assert PictureFrame((600, 300), 0, 1).sheet(rows, max_side=300).shape == (300, 150, 4)


def test_shapes_of_pictures(tmp_path):
    assert image_shape([8, 8], 64) == (8, 8)
    assert image_shape(None, 64) is None
    with pytest.raises(SpecError, match=r"give height and width, e\.g\. 28,28"):
        image_shape((8, 4, 2), 64)
    with pytest.raises(SpecError, match="makes 56 values, and rows have 64"):
        image_shape((8, 7), 64)
    np.save(tmp_path / "x.npy", np.zeros((5, 4, 6), np.uint8))
    bigkpca.ingest(tmp_path / "x.npy", tmp_path / "x.zarr")
    assert recorded_shape(str(tmp_path / "x.zarr"), 24) == (4, 6)
    assert recorded_shape(str(tmp_path / "x.zarr"), 25) is None
    assert recorded_shape(None, 24) is None
