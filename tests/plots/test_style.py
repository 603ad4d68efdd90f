"""The style of figures: that of the user, on axes that were given or new ones."""

import sys

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_hex

from bigkpca import plots
from bigkpca.errors import SpecError
from bigkpca.plots import style
from bigkpca.plots.style import PALETTE, check_axes, label_colors, own_or_new
from tests.helpers.commands import finished
from tests.helpers.files import ROOT


def test_figures_are_in_the_style_of_the_user_which_stays(images):
    kpca, _ = images
    before = dict(plt.rcParams)
    with plt.style.context("dark_background"):
        axes = plots.spectrum(kpca)
        assert to_hex(axes.patches[0].get_facecolor()) == to_hex(plt.rcParams["axes.prop_cycle"].by_key()["color"][0])
    assert axes.lines[-1].get_color() == "white"
    assert dict(plt.rcParams) == before
    assert label_colors(10) == tuple(plt.rcParams["axes.prop_cycle"].by_key()["color"])
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
    printed = finished(sys.executable, "-c", code, cwd=ROOT).stdout
    assert printed == "plots need matplotlib: pip install 'bigkpca[report]'\n"
