"""The hand that touches the workspace's files: what runs in a child process of its own.

The child sees the standard library and this folder alone, so these modules import nothing else,
and little of that: it is started while somebody waits.
"""
