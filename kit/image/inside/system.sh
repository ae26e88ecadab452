#!/bin/sh
# First step of an engine image: pinned Debian packages, the engine's user, its home. Arguments: user, uid.
# Beside it: packages.list, one NAME=VERSION a line; empty when the base holds all of them.
set -eu
here=$(dirname "$0")
if [ -s "$here/packages.list" ]; then
  export DEBIAN_FRONTEND=noninteractive
  apt-get -q -y update
  xargs -a "$here/packages.list" apt-get -q -y install --no-install-recommends
  rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin /var/cache/ldconfig/aux-cache /var/log/apt /var/log/dpkg.log
fi
# By hand: useradd writes today's date.
grep -q "^$1:" /etc/passwd || {
  echo "$1:x:$2:" >>/etc/group
  echo "$1:x:$2:$2:inference engine:/var/lib/engine:/usr/sbin/nologin" >>/etc/passwd
}
mkdir -p /var/lib/engine
chown "$2:$2" /var/lib/engine
