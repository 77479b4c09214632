"""Variables that make a program do something else than it was asked are not passed on."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["clean_environment"]

_TRICKS = frozenset(
    {
        *("BASHOPTS", "BASH_ENV", "CDPATH", "ENV", "GCONV_PATH", "GLIBC_TUNABLES", "GLOBIGNORE"),
        *("HISTFILE", "IFS", "LD_AUDIT", "LD_PRELOAD", "LOCPATH", "MALLOC_TRACE", "NODE_OPTIONS"),
        *("PERL5OPT", "PROMPT_COMMAND", "PS4", "PYTHONHOME", "PYTHONINSPECT", "PYTHONSTARTUP"),
        *("RUBYOPT", "SHELLOPTS"),
    }
)


def clean_environment(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in environment.items()
        if name not in _TRICKS
        and not name.startswith(("BASH_FUNC_", "DYLD_INSERT"))
        and "\0" not in name + value
        and name
        and "=" not in name
    }
