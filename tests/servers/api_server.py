"""The API surface as tests open it, and the way to speak to it."""

from __future__ import annotations

from collections.abc import Sequence

from parley.config.settings import ApiConfig, GatewayConfig
from parley.profiles import Profile
from parley.surfaces.api.surface import ApiSurface, Mounted

__all__ = ["an_api", "bearer", "local_key"]


def an_api(
    home: Profile,
    *others: Profile,
    host: str = "127.0.0.1",
    port: int = 0,
    config: ApiConfig | None = None,
    network: GatewayConfig | None = None,
    mounted: Sequence[Mounted] = (),
) -> ApiSurface:
    """Of the house of `home`, which serves these profiles."""
    served = (home, *others)
    rules = network or GatewayConfig()
    if config is not None:
        rules = rules.model_copy(update={"api": config})
    return ApiSurface(
        host, port, home=home, profiles=lambda: served, network=rules, mounted=mounted
    )


def local_key(home: Profile) -> str:
    """The key that was made for it, once it has started."""
    return (home.home / "api.key").read_text().strip()


def bearer(home: Profile) -> dict[str, str]:
    return {"Authorization": f"Bearer {local_key(home)}"}
