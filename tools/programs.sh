#!/bin/sh
# Programs that tests start: a database server, a browser, Java, a compiler. Installed where that is possible; where it is
# not, the tests that need them are skipped, and this says so.
wanted=""
ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || wanted="$wanted postgresql"
command -v chromium >/dev/null || wanted="$wanted chromium"
[ -n "$JAVA_HOME" ] || command -v java >/dev/null || wanted="$wanted openjdk-17-jre-headless"
command -v g++ >/dev/null || wanted="$wanted g++"
[ -z "$wanted" ] && exit 0
echo "Tests start programs that are not here:$wanted. Trying to install them."
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq &&
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $wanted >/dev/null; then
    exit 0
fi
echo "They could not be installed; the tests that need them are skipped. On Debian, as root: apt-get install$wanted" >&2
