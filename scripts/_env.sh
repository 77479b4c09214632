# Shared by scripts/run and scripts/test: the private environment in .venv, made when it is missing
# or out of date. Says what it does on stderr; reads nothing from stdin.

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
venv="$root/.venv"

say() { printf '%s\n' "$*" >&2; }

find_python() {
    local candidate
    for candidate in "${PARLEY_PYTHON:-}" python3 python3.14 python3.13 python3.12 python3.11; do
        [ -n "$candidate" ] || continue
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            printf '%s' "$candidate"
            return 0
        fi
    done
    say "Parley needs Python 3.11 or newer; install it, or name it: PARLEY_PYTHON=/path/to/python $0"
    return 1
}

# One line on a terminal that changes with what is being installed; else nothing until it is done.
show_progress() {
    if [ -t 2 ]; then
        local line
        while IFS= read -r line; do
            case "$line" in
                Collecting*|Downloading*|*Installing*) printf '\r\033[K  %.70s' "$line" >&2 ;;
            esac
        done
        printf '\r\033[K' >&2
    else
        cat >/dev/null
    fi
}

pip_install() {
    "$venv/bin/python" -m pip --disable-pip-version-check install --progress-bar off \
        --constraint "$root/constraints.txt" "$@" </dev/null 2>&1 | tee "$venv/install.log" | show_progress
    return "${PIPESTATUS[0]}"
}

# What went wrong, in a sentence, from what pip said.
install_failure() {
    local log="$venv/install.log" version pins
    # First: without a network pip also says that no version of anything fits.
    if grep -qE 'Retry\(total=0|ConnectionError|ConnectTimeout|ProxyError|name resolution' "$log"; then
        printf '%s' "The package index cannot be reached: check the network and run this again."
    elif grep -q 'No space left on device' "$log"; then
        printf '%s' "The disk is full: free some space for $venv and run this again."
    elif grep -qE 'ResolutionImpossible|No matching distribution|a different Python' "$log"; then
        version="$("$venv/bin/python" -c 'import platform; print(platform.python_version())')"
        pins="$(sed -n -e 's/.*requested (constraint) \([^ ]*\).*/\1/p' \
            -e "s/.*Package '\([^']*\)' requires a different Python.*/\1/p" \
            -e 's/.*No matching distribution found for \([^ ]*\).*/\1/p' "$log" | sort -u | tr '\n' ' ')"
        printf '%s' "The pins in constraints.txt do not fit Python $version (${pins% }): " \
            "update this checkout, or use another Python with PARLEY_PYTHON=/path/to/python."
    else
        grep '^ERROR' "$log" | tail -n 3 >&2 || tail -n 5 "$log" >&2
        printf '%s' "Installing failed."
    fi
}

wanted_state() { printf '%s %s %s' "$(cat "$root/pyproject.toml" "$root/constraints.txt" | cksum)" "$root" "$1"; }

# is_installed KIND EXTRAS: nothing of it is missing or out of date.
is_installed() { [ "$(cat "$venv/installed-$1" 2>/dev/null)" = "$(wanted_state "$2")" ]; }

# ensure_env KIND EXTRAS: .venv has Parley with these extras, as this checkout wants them.
ensure_env() {
    local python
    is_installed "$@" && return 0

    # Two at once would install over each other.
    if command -v flock >/dev/null; then
        exec 9>"$root/.venv.lock"
        flock 9
        is_installed "$@" && { exec 9>&-; return 0; }
    fi
    if ! "$venv/bin/python" -c 'import sys' 2>/dev/null; then
        python="$(find_python)" || return 1
        say "Making a private Python environment in $venv"
        rm -rf "$venv"
        if ! "$python" -m venv "$venv" </dev/null >&2; then
            rm -rf "$venv"
            say "This Python cannot make environments; on Debian or Ubuntu: apt install python3-venv"
            return 1
        fi
    fi
    # Under its former name it would own the `parley` command as well.
    if compgen -G "$venv/lib/python*/site-packages/parley-[0-9]*.dist-info" >/dev/null; then
        "$venv/bin/python" -m pip --quiet uninstall --yes parley </dev/null >&2 || true
    fi
    say "Installing Parley (once; about a minute)"
    if ! pip_install --editable "$root[$2]"; then
        say "$(install_failure) The whole log: $venv/install.log"
        return 1
    fi
    wanted_state "$2" >"$venv/installed-$1"
    if command -v flock >/dev/null; then exec 9>&-; fi
}
