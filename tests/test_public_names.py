"""The names that `import bigkpca` offers, which are imported when they are first used."""

from importlib import import_module

import pytest

import bigkpca


def test_public_names_are_where_the_lazy_table_says():
    assert sorted(bigkpca._PUBLIC) == sorted(bigkpca.__all__)
    for name, (module, attribute) in bigkpca._PUBLIC.items():
        found = import_module(module)
        assert getattr(bigkpca, name) is (getattr(found, attribute) if attribute else found)


def test_other_names_do_not_exist():
    with pytest.raises(AttributeError, match="module 'bigkpca' has no attribute 'KernelPca'"):
        _ = bigkpca.KernelPca
