"""python -m bigkpca.cli ..."""

from bigkpca.cli import main

if __name__ == "__main__":
    main()
