# Used by scripts/test after _env.sh: the client libraries that tests/clients runs, in .venv-clients
# and tests/clients/node/node_modules. Both are made when missing or out of date.

clients="$root/.venv-clients"
node_clients="$root/tests/clients/node"

# ensure_python_clients: every pinned library is installed, apart from Parley's own environment.
ensure_python_clients() {
    local pins="$root/tests/clients/hashes.txt" state python
    state="$(cksum <"$pins") $root"
    [ "$(cat "$clients/installed" 2>/dev/null)" = "$state" ] && return 0
    python="$(find_python)" || return 1
    say "Installing client libraries for tests/clients in $clients (once; a minute or two)"
    rm -rf "$clients"
    "$python" -m venv "$clients" </dev/null >&2 || return 1
    if ! update_pip "$clients" ||
        ! pip_install "$clients" --require-hashes --only-binary :all: --requirement "$pins"; then
        say "$(install_failure "$clients" tests/clients/hashes.txt) The whole log: $clients/install.log"
        return 1
    fi
    printf '%s' "$state" >"$clients/installed"
}

# ensure_node_clients: the npm packages, where Node is installed; the tests are skipped elsewhere.
ensure_node_clients() {
    local state
    command -v node >/dev/null && command -v npm >/dev/null || return 0
    state="$(cksum <"$node_clients/package-lock.json") $(node --version)"
    [ "$(cat "$node_clients/node_modules/.installed" 2>/dev/null)" = "$state" ] && return 0
    say "Installing npm packages for tests/clients in $node_clients/node_modules (once)"
    if ! npm --prefix "$node_clients" ci --ignore-scripts --no-audit --no-fund --loglevel error \
        </dev/null >&2; then
        say "Installing the npm packages of tests/clients failed."
        return 1
    fi
    printf '%s' "$state" >"$node_clients/node_modules/.installed"
}
