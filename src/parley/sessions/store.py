"""Which conversation a message belongs to: its profile's namespace, its surface's policy."""

from __future__ import annotations

from parley.config.settings import GatewayConfig, SessionSettings
from parley.profiles import DEFAULT_PROFILE
from parley.protocol import SessionSource
from parley.sessions.key import build_session_key, namespace_of
from parley.sessions.policy import SessionPolicy, policy_for

__all__ = ["SessionStore"]


class SessionStore:
    """Names the conversations of one served profile, `active`.

    While one gateway serves one profile, every key is in the namespace `main`: its database is its
    own. Where one serves many, a named profile's keys carry its name.
    """

    def __init__(
        self,
        config: GatewayConfig,
        settings: SessionSettings | None = None,
        *,
        active: str = DEFAULT_PROFILE,
    ) -> None:
        self._multiplex = config.multiplex_profiles
        self._settings = settings or SessionSettings()
        self._active = active
        self._policies: dict[str, SessionPolicy] = {}

    @property
    def namespace(self) -> str:
        """The second part of every key this profile has now."""
        return namespace_of(self.profile_for_key() or DEFAULT_PROFILE)

    def profile_for_key(self, source: SessionSource | None = None) -> str | None:
        """Whose name stands in the key: nobody's unless many are served by one gateway."""
        if not self._multiplex:
            return None
        return (source.profile if source is not None else None) or self._active

    def policy(self, platform: str) -> SessionPolicy:
        found = self._policies.get(platform)
        if found is None:
            found = self._policies[platform] = policy_for(self._settings, platform)
        return found

    def key_for(self, source: SessionSource) -> str:
        policy = self.policy(source.platform)
        return build_session_key(
            source,
            group_sessions_per_user=policy.group_sessions_per_user,
            thread_sessions_per_user=policy.thread_sessions_per_user,
            profile=self.profile_for_key(source),
        )
