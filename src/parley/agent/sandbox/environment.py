"""The environment of a command: nothing in it makes a program do more than it was asked.

Neither does a variable, nor a file that a program reads from its home unasked.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

__all__ = ["UNCONTAINED", "clean_environment", "personal_environment"]

_TRICKS = frozenset(
    {
        *("BASHOPTS", "BASH_ENV", "CDPATH", "ENV", "GCONV_PATH", "GLIBC_TUNABLES", "GLOBIGNORE"),
        *("HISTFILE", "IFS", "LD_AUDIT", "LD_PRELOAD", "LOCPATH", "MALLOC_TRACE", "NODE_OPTIONS"),
        *("PERL5OPT", "PROMPT_COMMAND", "PS4", "PYTHONHOME", "PYTHONINSPECT", "PYTHONSTARTUP"),
        *("RUBYOPT", "SHELLOPTS"),
    }
)


# Without a sandbox what lies in a repository of the workspace must not run with `git status`.
UNCONTAINED = {
    "GIT_CONFIG_COUNT": "2",
    "GIT_CONFIG_KEY_0": "core.fsmonitor",
    "GIT_CONFIG_VALUE_0": "false",
    "GIT_CONFIG_KEY_1": "core.hooksPath",
    "GIT_CONFIG_VALUE_1": os.devnull,
}


def personal_environment(home: str, cache: str) -> dict[str, str]:
    """A home with nothing in it, apart from the workspace, and a place for what can be lost.

    What was written to a home, such as `.gitconfig` or `usercustomize.py`, would run with the
    next command that reads it.
    """
    return {
        "HOME": home,
        "XDG_CACHE_HOME": cache,
        "PYTHONNOUSERSITE": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "CARGO_HOME": f"{cache}/cargo",
        "GOENV": "off",
        "GOPATH": f"{cache}/go",
        "LESSHISTFILE": "-",
        "npm_config_cache": f"{cache}/npm",
        "npm_config_userconfig": os.devnull,
    }


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
