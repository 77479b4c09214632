"""Checks of one client library: each runs, and all results go to stdout as one JSON object."""

import asyncio
import inspect
import json
import os
import traceback

API = os.environ["API"]
KEY = os.environ["KEY"]
FOUND = {"Oslo": "rain", "Rome": "sun"}
BOTH = "Oslo: rain; Rome: sun"

_checks = {}


def check(function):
    """Mark a function, or coroutine function, as a check named after itself."""
    _checks[function.__name__] = function
    return function


def reversed_question(text):
    """What the model says to a plain question."""
    return text[::-1]


def run():
    results = {}
    for name, function in _checks.items():
        try:
            made = function()
            if inspect.isawaitable(made):
                asyncio.run(made)
            results[name] = "ok"
        except Exception:
            results[name] = traceback.format_exc()
    print(json.dumps(results))
