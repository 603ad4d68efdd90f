"""python -m bigkpca.cli ..."""

from __future__ import annotations

from bigkpca.cli import main

if __name__ == "__main__":
    main()
