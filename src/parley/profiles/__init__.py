"""Profiles: who an agent is, which ones there are, and whose work is being done.

`default` lives in `PARLEY_HOME` (`~/.parley`), a named one in `PARLEY_HOME/profiles/<name>`.
"""

from parley.profiles.found import (
    active_profile,
    archive_folder,
    find_profile,
    looks_like_profile,
    mark_active,
    marked_active,
    profiles_to_serve,
    scan_profiles,
)
from parley.profiles.profile import (
    DEFAULT_PROFILE,
    PROFILE_NAME,
    RESERVED_NAMES,
    Profile,
    check_name,
    default_profile,
    named_profile,
)
from parley.profiles.scope import (
    OutsideScope,
    enter_scope,
    profile_scope,
    require_scope,
    scoped_profile,
)

__all__ = [
    "DEFAULT_PROFILE",
    "PROFILE_NAME",
    "RESERVED_NAMES",
    "OutsideScope",
    "Profile",
    "active_profile",
    "archive_folder",
    "check_name",
    "default_profile",
    "enter_scope",
    "find_profile",
    "looks_like_profile",
    "mark_active",
    "marked_active",
    "named_profile",
    "profile_scope",
    "profiles_to_serve",
    "require_scope",
    "scan_profiles",
    "scoped_profile",
]
