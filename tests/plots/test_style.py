"""The style of figures: that of the user, and colours that are told apart."""

import subprocess
import sys
from itertools import combinations

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_hex

from bigkpca import plots
from bigkpca.errors import SpecError
from bigkpca.plots import style
from bigkpca.plots.style import PALETTE, check_axes, label_colors, own_or_new
from tests.helpers.files import ROOT


def lab(linear):
    """CIELAB, under D65, of linear RGB (k, 3)."""
    to_xyz = [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
    xyz = linear @ np.array(to_xyz).T / [0.95047, 1, 1.08883]
    f = np.where(xyz > 216 / 24389, np.cbrt(xyz), (24389 / 27 * xyz + 16) / 116)
    return np.stack([116 * f[:, 1] - 16, 500 * (f[:, 0] - f[:, 1]), 200 * (f[:, 1] - f[:, 2])], axis=1)


def ciede2000(one, other):
    """The difference of two colours in CIELAB (Sharma, Wu and Dalal 2005)."""
    (L1, a1, b1), (L2, a2, b2) = one, other
    C = (np.hypot(a1, b1) + np.hypot(a2, b2)) / 2
    G = 1.5 - np.sqrt(C**7 / (C**7 + 25.0**7)) / 2
    C1, C2 = np.hypot(G * a1, b1), np.hypot(G * a2, b2)
    h1, h2 = (np.degrees(np.arctan2(b, G * a)) % 360 for a, b in ((a1, b1), (a2, b2)))
    turn = (h2 - h1 + 180) % 360 - 180
    H = 2 * np.sqrt(C1 * C2) * np.sin(np.radians(turn / 2))
    L, C, h = (L1 + L2) / 2, (C1 + C2) / 2, h1 + turn / 2
    waves = ((1, -30, -0.17), (2, 0, 0.24), (3, 6, 0.32), (4, -63, -0.2))
    T = 1 + sum(size * np.cos(np.radians(times * h + shift)) for times, shift, size in waves)
    bend = -np.sin(np.radians(60 * np.exp(-(((h % 360 - 275) / 25) ** 2)))) * 2 * np.sqrt(C**7 / (C**7 + 25.0**7))
    light = (L2 - L1) / (1 + 0.015 * (L - 50) ** 2 / np.sqrt(20 + (L - 50) ** 2))
    c, h = (C2 - C1) / (1 + 0.045 * C), H / (1 + 0.015 * C * T)
    return np.sqrt(light**2 + c**2 + h**2 + bend * c * h)


SIGHT = {  # linear RGB as seen without one kind of cones (Machado, Oliveira and Fernandes 2009)
    "normal": (np.eye(3), 22),
    "protan": ([[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]], 12),
    "deutan": ([[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]], 12),
    "tritan": ([[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]], 12),
}


@pytest.mark.parametrize("sight", SIGHT)
def test_colours_are_told_apart(sight):
    assert ciede2000((50, 2.6772, -79.7751), (50, 0, -82.7485)) == pytest.approx(2.0425, abs=1e-4)
    assert ciede2000((22.7233, 20.0904, -46.694), (23.0331, 14.973, -42.5619)) == pytest.approx(2.0373, abs=1e-4)
    seen, least = SIGHT[sight]
    papers = "#ffffff", "#1f252b"  # of the page, by day and by night
    rgb = np.array([[int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)] for color in (*PALETTE, *papers)])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    found = lab(np.clip(linear @ np.array(seen).T, 0, 1))
    pairs = [(i, j) for i, j in combinations(range(len(found)), 2) if i < len(PALETTE)]
    assert len(PALETTE) == 12
    assert min(ciede2000(found[i], found[j]) for i, j in pairs) >= least


def test_figures_are_in_the_style_of_the_user_which_stays(images):
    kpca, _ = images
    before = dict(plt.rcParams)
    with plt.style.context("dark_background"):
        axes = plots.spectrum(kpca)
        assert to_hex(axes.patches[0].get_facecolor()) == to_hex(plt.rcParams["axes.prop_cycle"].by_key()["color"][0])
    assert axes.lines[-1].get_color() == "white"
    assert dict(plt.rcParams) == before
    own = tuple(plt.rcParams["axes.prop_cycle"].by_key()["color"])
    assert label_colors(10) == own
    assert label_colors(11) == PALETTE
    with plt.rc_context({"axes.prop_cycle": plt.cycler(color=["red", "red", "blue"])}):
        assert label_colors(2) == ("red", "blue")
        assert label_colors(3) == PALETTE
    with plt.rc_context({"axes.prop_cycle": plt.cycler(linestyle=["-", "--"])}):
        assert label_colors(1) == PALETTE


def test_axes_are_those_that_were_given_or_new_ones(axes, monkeypatch):
    assert own_or_new(axes) is axes
    assert own_or_new(None) is not own_or_new(None)
    for given in (axes.figure, np.array([axes])):
        with pytest.raises(SpecError, match=r"axes must be one Axes of Matplotlib, not a value of type (Figure|ndarr)"):
            check_axes(given)
    monkeypatch.setattr(style, "find_spec", lambda name: None)
    with pytest.raises(SpecError, match=r"plots need matplotlib: pip install 'bigkpca\[report\]'"):
        check_axes(None)


@pytest.mark.full
def test_matplotlib_is_imported_by_the_first_call_only():
    code = "import sys, bigkpca.plots; assert 'matplotlib' not in sys.modules; sys.modules['matplotlib'] = None\n"
    code += "try: bigkpca.plots.spectrum(None)\nexcept Exception as error: print(error)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout == "plots need matplotlib: pip install 'bigkpca[report]'\n"
