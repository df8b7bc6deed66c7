#!/bin/sh
# Installs what the tests can use and this machine lacks. Debian (or a relative), as root.
# Nothing that it installs is started, now or at the next boot: the tests start private servers.
set -eu

has() { command -v "$1" >/dev/null 2>&1; }
any() { for path in "$@"; do [ -e "$path" ] && return 0; done; return 1; }

missing=""
need() { missing="$missing $*"; }

any /usr/lib/postgresql/*/bin/postgres || has postgres || need postgresql
has redis-server || has valkey-server || need redis-server
any /usr/lib/rabbitmq/bin/rabbitmq-server || has rabbitmq-server || need rabbitmq-server
any /usr/share/java/zookeeper.jar && has java || need zookeeper default-jre-headless
has chromium || has chromium-browser || has google-chrome || need chromium
any /usr/share/fonts/opentype/noto/NotoSansCJK* || need fonts-noto-cjk
has msgfmt || need gettext
has wrk || need wrk
has cc || need gcc libc6-dev
# With Python from Debian the module that makes .venv comes in a package of its own.
if has python3 && ! python3 -c 'import ensurepip' 2>/dev/null; then need python3-venv; fi

if [ -z "$missing" ]; then
	echo "services: everything is there"
	exit 0
fi
if ! has apt-get; then
	echo "services: install with this system's package manager:$missing" >&2
	exit 1
fi
if [ "$(id -u)" != 0 ]; then
	echo "services: as root, run: apt-get install$missing" >&2
	exit 1
fi

# While the packages are set up, their servers may not start. An existing policy stays as it is.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
	trap 'rm -f "$policy"' EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM
	printf '#!/bin/sh\nexit 101\n' >"$policy"
	chmod 755 "$policy"
fi
# Those that were there before are left to their owner.
units=""
for unit in postgresql redis-server rabbitmq-server zookeeper; do
	case "$missing" in *"$unit"*) units="$units $unit" ;; esac
done

export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
# Unquoted on purpose: one word for each package.
# shellcheck disable=SC2086
apt-get install -qq -y -o Dpkg::Use-Pty=0 --no-install-recommends $missing
if has systemctl && [ -d /run/systemd/system ]; then
	for unit in $units; do systemctl disable --quiet "$unit" 2>/dev/null || true; done
fi
