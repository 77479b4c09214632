"""The one registry of environment variables, beside those that override a setting.

`setup`, `doctor`, the docs and the redaction are made from it.
"""

from __future__ import annotations

import re
from typing import Final, Literal, NotRequired, TypeAlias, TypedDict

__all__ = ["OPTIONAL_ENV_VARS", "Category", "EnvVar", "belongs_in_env_file", "looks_secret"]

Category: TypeAlias = Literal["provider", "gateway", "paths", "messaging"]


class EnvVar(TypedDict):
    """What a variable is for, and how to ask a person for it. `password`: never shown."""

    description: str
    prompt: str
    category: Category
    password: bool
    url: NotRequired[str]


OPTIONAL_ENV_VARS: Final[dict[str, EnvVar]] = {
    "OPENAI_API_KEY": {
        "description": "The key for OpenAI's models.",
        "prompt": "OpenAI API key",
        "category": "provider",
        "password": True,
        "url": "https://platform.openai.com/api-keys",
    },
    "ANTHROPIC_API_KEY": {
        "description": "The key for Anthropic's models.",
        "prompt": "Anthropic API key",
        "category": "provider",
        "password": True,
        "url": "https://console.anthropic.com/settings/keys",
    },
    "OLLAMA_HOST": {
        "description": "Where an Ollama on this machine listens, if not at port 11434.",
        "prompt": "Ollama's address",
        "category": "provider",
        "password": False,
    },
    "PARLEY_HOME": {
        "description": "The directory of the default profile, instead of ~/.parley.",
        "prompt": "Home directory",
        "category": "paths",
        "password": False,
    },
    "PARLEY_PROFILE": {
        "description": "The profile that commands work on, above `parley profile use`.",
        "prompt": "Profile",
        "category": "paths",
        "password": False,
    },
    "GATEWAY_MULTIPLEX_PROFILES": {
        "description": "Whether one gateway serves every profile, above the setting.",
        "prompt": "Serve every profile",
        "category": "gateway",
        "password": False,
    },
    "PARLEY_CACHE": {
        "description": "The directory for downloaded models.",
        "prompt": "Cache directory",
        "category": "paths",
        "password": False,
    },
    "GATEWAY_PROXY_URL": {
        "description": "The address of a remote agent that answers instead, above the setting.",
        "prompt": "Remote agent's address",
        "category": "messaging",
        "password": False,
    },
    "GATEWAY_PROXY_KEY": {
        "description": "The key for the remote agent, where it wants one.",
        "prompt": "Remote agent's key",
        "category": "messaging",
        "password": True,
    },
    "AGENT_WS_URL": {
        "description": "The address of a remote agent over a WebSocket, above `direct.url`.",
        "prompt": "Direct agent's address",
        "category": "messaging",
        "password": False,
    },
    "AGENT_WS_KEY": {
        "description": "The key for that agent, where it wants one.",
        "prompt": "Direct agent's key",
        "category": "messaging",
        "password": True,
    },
    "MATRIX_PLATFORM_BACKEND": {
        "description": "Who answers on Matrix: `real` (a direct agent), `agent`, `proxy`, `mock`.",
        "prompt": "Who answers on Matrix",
        "category": "messaging",
        "password": False,
    },
    "WEBHOOK_TOKEN": {
        "description": "The token of the webhook, at least 16 characters: you choose it.",
        "prompt": "Webhook token",
        "category": "messaging",
        "password": True,
    },
}

# The name must end so: SSH_AUTH_SOCK or MAX_TOKENS hold no secret.
_SECRET_NAME = re.compile(
    r"(?:^|_)(?:API_?KEY|KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|PAT)(?:_\d+)?$"
    r"|(?:API_?KEY|SECRET|PASSWORD)",
    re.IGNORECASE,
)


def looks_secret(name: str) -> bool:
    """Whether a variable of this name holds something that must never be shown."""
    known = OPTIONAL_ENV_VARS.get(name)
    if known is not None:
        return known["password"]
    return _SECRET_NAME.search(name) is not None


def belongs_in_env_file(name: str) -> bool:
    """Whether a name given where a setting is wanted is that of a secret, as in `.env`."""
    return re.fullmatch(r"[A-Z_][A-Z0-9_]*", name) is not None and looks_secret(name)
