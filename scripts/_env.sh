# Shared by scripts/run and scripts/test: the private environment in .venv, made when it is missing
# or out of date. Says what it does on stderr; reads nothing from stdin.

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
venv="$root/.venv"
hashes="$root/hashes.txt"

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

# pinned PACKAGE: its version and hashes, as lines of a requirements file.
pinned() { sed -n "/^$1==/,/[^\\\\]\$/p" "$hashes"; }

# pip_install ENVIRONMENT ARGUMENTS: what pip says is kept in ENVIRONMENT/install.log.
pip_install() {
    local env="$1"
    shift
    "$env/bin/python" -m pip --disable-pip-version-check install --progress-bar off "$@" \
        </dev/null 2>&1 | tee "$env/install.log" | show_progress
    return "${PIPESTATUS[0]}"
}

# update_pip ENVIRONMENT: the pinned pip. The one that comes with Python may be years old; it can check
# the hashes of requirements, but not those of constraints.
update_pip() {
    local pin
    pin="$(pinned pip)"
    pin="${pin%%[ ;]*}"
    compgen -G "$1/lib/python*/site-packages/pip-${pin#pip==}.dist-info" >/dev/null && return 0
    pinned pip >"$1/pip.txt"
    pip_install "$1" --require-hashes --no-deps --only-binary :all: --requirement "$1/pip.txt"
}

# remove_setuptools ENVIRONMENT: it comes with Python 3.11 or is there for a build; few need it later.
remove_setuptools() {
    compgen -G "$1/lib/python*/site-packages/setuptools-[0-9]*.dist-info" >/dev/null || return 0
    case "$("$1/bin/python" -m pip show setuptools </dev/null 2>/dev/null)" in
        *"Required-by: "[A-Za-z]*) ;;
        *) "$1/bin/python" -m pip --quiet uninstall --yes setuptools </dev/null >&2 ;;
    esac
}

# install_parley EXTRAS: no file from an index whose hash is not in hashes.txt. Builds fetch nothing
# (--no-build-isolation): pip does not check the hashes of what it fetches for them.
install_parley() {
    local list="$root/scripts/_requirements.py"
    : >"$venv/install.log"
    "$venv/bin/python" "$list" "$root/scripts/build-tools.toml" "$1" >"$venv/build-tools.txt" &&
        "$venv/bin/python" "$list" "$root/pyproject.toml" "$1" >"$venv/requirements.txt" &&
        update_pip "$venv" &&
        pip_install "$venv" --require-hashes --constraint "$hashes" --only-binary :all: \
            --requirement "$venv/build-tools.txt" &&
        pip_install "$venv" --require-hashes --constraint "$hashes" --no-build-isolation \
            --requirement "$venv/requirements.txt" &&
        pip_install "$venv" --no-index --no-deps --no-build-isolation --editable "$root" &&
        remove_setuptools "$venv"
}

# named_in LOG SED-COMMAND…: the packages that these commands find, on one line.
named_in() {
    local log="$1" command commands=()
    shift
    for command in "$@"; do commands+=(-e "$command"); done
    sed -n "${commands[@]}" "$log" | sort -u | tr '\n' ' ' | sed 's/ $//'
}

# install_failure ENVIRONMENT [HASHES]: what went wrong, in a sentence, from what pip said.
install_failure() {
    local log="$1/install.log" file="${2:-hashes.txt}" version pins
    if grep -q 'DO NOT MATCH THE HASHES' "$log"; then
        pins="$(named_in "$log" '/DO NOT MATCH THE HASHES/,$ s/^    \([^ ]*\) from .*:$/\1/p')"
        printf '%s' "$pins does not match the hash in $file: the file was changed after it was pinned, " \
            "or damaged on the way. Do not install it another way; " \
            "run this again, and report it if it stays so."
    # Before the rest: without a network pip also says that no version of anything fits.
    elif grep -qE 'Retry\(total=0|ConnectionError|ConnectTimeout|ProxyError|name resolution' "$log"; then
        printf '%s' "The package index cannot be reached: check the network and run this again."
    elif grep -q 'No space left on device' "$log"; then
        printf '%s' "The disk is full: free some space for $1 and run this again."
    elif grep -q -e '--require-hashes mode' "$log"; then
        pins="$(named_in "$log" '/--require-hashes mode/,$ s/^    \([A-Za-z0-9._-]*\).*/\1/p')"
        printf '%s' "$pins has no hash in $file: update this checkout, " \
            "or run ./scripts/lock if you changed what Parley needs."
    elif grep -q 'backend-unavailable' "$log"; then
        pins="$(named_in "$log" '/generating package metadata/ { n; s/^[^A-Za-z0-9]*//p; }')"
        printf '%s' "$pins has no wheel for this system, and what builds it is not in $file: " \
            "use another Python with PARLEY_PYTHON=/path/to/python, " \
            "or install with pip (docs/quickstart.md)."
    elif grep -qE 'ResolutionImpossible|No matching distribution|a different Python' "$log"; then
        version="$("$1/bin/python" -c 'import platform; print(platform.python_version())')"
        pins="$(named_in "$log" 's/.*requested (constraint) \([^ ]*\).*/\1/p' \
            "s/.*Package '\([^']*\)' requires a different Python.*/\1/p" \
            's/.*No matching distribution found for \([^ ]*\).*/\1/p')"
        printf '%s' "The pins in $file do not fit Python $version ($pins): " \
            "update this checkout, or use another Python with PARLEY_PYTHON=/path/to/python."
    else
        grep '^ERROR' "$log" | tail -n 3 >&2 || tail -n 5 "$log" >&2
        printf '%s' "Installing failed."
    fi
}

wanted_state() {
    local files=("$root/pyproject.toml" "$hashes" "$root/scripts/build-tools.toml")
    printf '%s %s %s' "$(cat "${files[@]}" | cksum)" "$root" "$1"
}

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
    if ! install_parley "$2"; then
        say "$(install_failure "$venv") The whole log: $venv/install.log"
        return 1
    fi
    wanted_state "$2" >"$venv/installed-$1"
    if command -v flock >/dev/null; then exec 9>&-; fi
}
