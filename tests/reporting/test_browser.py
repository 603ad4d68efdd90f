"""A browser shows the page of a model without complaint."""

import re
import shutil
import subprocess

import pytest

pytestmark = pytest.mark.full
# The page in a frame as wide as a phone or a desktop; what its script finds stays in the DOM that the browser prints.
_WRAPPER = """<!doctype html><title>wrapper</title><style>body {{ margin: 0 }} iframe {{ border: 0 }}</style>
<iframe id="page" src="{name}" width="{width}" height="2000"></iframe><pre id="found"></pre>
<script>
addEventListener("load", () => {{
  const page = document.getElementById("page").contentDocument;
  const shown = [...page.querySelectorAll("svg, img")].filter((one) => one.getBoundingClientRect().height > 20);
  document.getElementById("found").textContent = JSON.stringify([
    page.documentElement.scrollWidth, shown.length, page.defaultView.getComputedStyle(page.body).backgroundColor,
  ]);
}});
</script>"""


def browse(address, *options):
    """What headless chromium makes of a file; skips the test where there is none."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("chromium-headless-shell")
    if browser is None:
        pytest.skip("no chromium is installed: apt-get install chromium")
    quiet = "--headless --no-sandbox --disable-gpu --disable-background-networking --no-first-run --hide-scrollbars"
    own = f"--allow-file-access-from-files --enable-logging=stderr --user-data-dir={address.parent / 'profile'}"
    command = [browser, *quiet.split(), *own.split(), *options, address.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1200, "light")])
def test_a_browser_shows_it_without_a_complaint(page, tmp_path, width, scheme):
    (tmp_path / "r.html").write_text(page, encoding="utf-8")
    wrapper = tmp_path / "wrapper.html"
    wrapper.write_text(_WRAPPER.format(name="r.html", width=width), encoding="utf-8")
    look = f"--blink-settings=preferredColorScheme={int(scheme == 'light')}", f"--window-size={width},2000"
    seen = browse(wrapper, *look, "--dump-dom", "--virtual-time-budget=5000")
    assert "CONSOLE" not in seen.stderr
    found = re.search(r'<pre id="found">\[(\d+),(\d+),"(.*?)"\]', seen.stdout)
    assert found, seen.stdout[-500:]
    assert int(found[1]) <= width  # nothing sticks out to the side
    assert int(found[2]) == 9
    assert found[3] == {"light": "rgb(243, 245, 247)", "dark": "rgb(20, 24, 28)"}[scheme]
