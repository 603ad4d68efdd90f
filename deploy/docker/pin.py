"""Write a file of requirements anew, with the hashes of the wheels that the image installs on x86-64 and on ARM.

    python3.13 pin.py requirements.txt        # after a change of versions; pip 25 or later

Only wheels for this Python and glibc count, so that a line has two hashes at most and not those of forty files.
"""

import json
import subprocess
import sys
from pathlib import Path

TAGS = ["manylinux2014", "manylinux_2_12", *(f"manylinux_2_{minor}" for minor in range(17, 42))]  # of Debian trixie


def hashes(file: Path, processor: str) -> dict[str, str]:
    """The requirement of each line, and the SHA-256 of its wheel for a processor."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--no-deps"]
    command += ["--only-binary=:all:", "--target=unused", "--report=-", "--requirement", str(file)]
    command += [f"--platform={tag}_{processor}" for tag in TAGS]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    found = json.loads(done.stdout)["install"]
    return {
        f"{each['metadata']['name']}=={each['metadata']['version']}": each["download_info"]["archive_info"]["hashes"][
            "sha256"
        ]
        for each in found
    }


def pinned(text: str) -> str:
    """The text without hashes."""
    lines = [line.partition(" --hash")[0] for line in text.splitlines()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    file = Path(sys.argv[1])
    plain = file.with_suffix(".plain")
    plain.write_text(pinned(file.read_text()))
    try:
        each = [hashes(plain, processor) for processor in ("x86_64", "aarch64")]
    finally:
        plain.unlink()
    comments = [line for line in file.read_text().splitlines() if line.startswith("#")]
    lines = [
        " ".join([name, *(f"--hash=sha256:{sha256}" for sha256 in sorted({of[name] for of in each}))])
        for name in each[0]
    ]
    file.write_text("\n".join([*comments, *sorted(lines, key=str.lower)]) + "\n")
