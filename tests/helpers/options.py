"""Options that public functions take, as **options too."""

import dataclasses
import inspect
from typing import get_args

from bigkpca.execution.options import RunOptions
from bigkpca.spec import FitSpec

_DEFAULTS = {name: field.default for name, field in FitSpec.model_fields.items()}
_DEFAULTS |= {each.name: each.default for each in dataclasses.fields(RunOptions)}


def declared_options(function):
    """The names of the options that a function takes as **options."""
    options = inspect.signature(function, eval_str=True).parameters.get("options")
    return () if options is None else tuple(get_args(options.annotation)[0].__annotations__)


def defaults_of(function):
    """The default of each parameter and option of a function."""
    own = {name: each.default for name, each in inspect.signature(function).parameters.items()}
    return own | {name: _DEFAULTS[name] for name in declared_options(function)}
