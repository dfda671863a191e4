#!/usr/bin/env bash
# scripts/check-bare.sh [--system=debian,ubuntu] [--target=demo,test]: both commands of the README
# on machines that have nothing. debootstrap makes a Debian 12 and an Ubuntu 24.04 with make, git
# and CA certificates; HEAD is cloned into each, and `make demo` and `make test` run there, in
# namespaces of their own. Registries are reached as this machine reaches them: by its mirror, its
# proxies, its certificates and its configuration of pip. A system whose packages cannot be reached
# is skipped. Needs root; a run takes half an hour and 10 GB below TMPDIR (default /var/tmp). What
# the commands print stays in build/bare. The last line counts commands: "N passed, N failed, N
# skipped".
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
systems=debian,ubuntu
targets=demo,test
for argument in "$@"; do
  case $argument in
  --system=*) systems=${argument#*=} ;;
  --target=*) targets=${argument#*=} ;;
  *) echo "check-bare: no option '$argument'; see the head of this script" >&2; exit 1 ;;
  esac
done
IFS=, read -ra targets <<<"$targets"
say() { echo "bare: $*"; }
passed=0 failed=0 skipped=0

# skip WHAT WHY: all commands on a system.
skip() {
  say "$1: skipped: $(head -n 1 <<<"$2")"
  skipped=$((skipped + ${#targets[@]}))
}

finish() {
  echo "$passed passed, $failed failed, $skipped skipped"
  [ $failed = 0 ] && exit 0
  exit 1
}

# debootstrap's script for a release: its own, or that of all of Ubuntu's before it.
scriptOf() {
  local scripts=/usr/share/debootstrap/scripts
  [ -e "$scripts/$1" ] && echo "$scripts/$1" || echo $scripts/gutsy
}

# The mirror of a release: the one that this machine's apt has, else debootstrap's.
mirrorOf() {
  local known
  known=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' "Codename: $1" |
    head -n 1)
  [ -n "$known" ] || known=$(
    ARCH=$(dpkg --print-architecture) SUITE=$1
    default_mirror() { echo "$1" && exit; }
    . "$(scriptOf "$1")"
  )
  echo "$known"
} 2>/dev/null

# What lets ROOT reach the registries as this machine does.
connect() {
  local root=$1 file
  cp -L /etc/resolv.conf "$root/etc/resolv.conf"
  apt-config dump | grep -i '^Acquire::[^ ]*proxy' >"$root/etc/apt/apt.conf.d/90proxy"
  for file in /etc/pip.conf "${XDG_CONFIG_HOME:-$HOME/.config}/pip/pip.conf"; do
    [ ! -f "$file" ] || cat "$file" >>"$root/etc/pip.conf"
  done
  if compgen -G '/usr/local/share/ca-certificates/*.crt' >/dev/null; then
    cp -L /usr/local/share/ca-certificates/*.crt "$root/usr/local/share/ca-certificates"
    chroot "$root" update-ca-certificates >/dev/null 2>&1
  fi
}

# The variables of that, as NAME=VALUE.
environment() {
  local name
  echo PIP_CERT=/etc/ssl/certs/ca-certificates.crt
  for name in {http,https,ftp,no}_proxy {HTTP,HTTPS,FTP,NO}_PROXY PIP_INDEX_URL \
    PIP_EXTRA_INDEX_URL PIP_TRUSTED_HOST PIP_PROXY PIP_DEFAULT_TIMEOUT; do
    [ -z "${!name:-}" ] || echo "$name=${!name}"
  done
}

# apart COMMAND...: in a mount namespace and a process namespace of its own. Whatever it mounts and
# starts is gone with it.
apart() {
  unshare --mount --propagation private --pid --fork --kill-child "$@" &
  child=$!
  wait $child
}

# inRoot ROOT COMMAND...: with the file systems of a running machine.
inRoot() {
  local root=$1 variables
  shift
  mapfile -t variables < <(environment)
  apart bash -c 'root=$1; shift
    mount -t proc proc "$root/proc" && mount -t sysfs -o ro sysfs "$root/sys" &&
      mount -t tmpfs tmpfs "$root/dev/shm" &&
      mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts "$root/dev/pts" &&
      mount --bind "$root/dev/pts/ptmx" "$root/dev/ptmx" && exec chroot "$root" "$@"' \
    bash "$root" env -i HOME=/root LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "${variables[@]}" "$@"
}

# run NAME ROOT TARGET: `make TARGET` in ROOT's clone.
run() {
  local log=build/bare/$1-$3.log start=$SECONDS ended=ok
  if inRoot "$2" make --no-print-directory -C /root/gpt2c "$3" >"$log" 2>&1 </dev/null; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    ended=FAILED
    tail -n 40 "$log"
  fi
  say "$1: make $3: $ended, $(awk "BEGIN { printf \"%.1f\", ($SECONDS - $start) / 60 }") minutes$(
    sed -n '$s/^[0-9]* passed.*/, &/p' "$log")"
}

# bare NAME RELEASE COMPONENTS KEYRING: both commands on a new system.
bare() {
  local name=$1 root=$work/$1 log=build/bare/$1.log target mirror options=()
  mirror=$(mirrorOf "$2")
  # Without its keys a release is taken as it is from a mirror that proves who it is.
  [ -e "/usr/share/keyrings/$4" ] || mirror=${mirror/#http:/https:} options=(--no-check-gpg)
  mkdir -p "$root"
  if ! apart debootstrap --variant=minbase --include=make,git,ca-certificates --components="$3" \
    "${options[@]}" "$2" "$root" "$mirror" "$(scriptOf "$2")" >"$log" 2>&1; then
    if grep -qE 'Failed getting release file|Invalid Release file|Unable to fetch' "$log"; then
      skip "$name" "its packages cannot be reached: $(grep -m 1 '^E:' "$log")"
    else
      say "$name: debootstrap FAILED"
      tail -n 5 "$log"
      failed=$((failed + 1))
    fi
    return
  fi
  connect "$root"
  git clone -q --no-hardlinks . "$root/root/gpt2c" || { failed=$((failed + 1)); return; }
  for target in "${targets[@]}"; do
    run "$name" "$root" "$target"
  done
  rm -rf "$root"
}

if [ "$(id -u)" != 0 ]; then
  skip "every system" "it needs root"
  finish
fi
if ! command -v debootstrap >/dev/null && ! { apt-get -qq update &&
  apt-get -qq -y install --no-install-recommends debootstrap; } >/dev/null 2>&1; then
  skip "every system" "there is no debootstrap"
  finish
fi
mkdir -p build/bare
child=
work=$(mktemp -d "${TMPDIR:-/var/tmp}/gpt2c-bare.XXXXXX") || exit 1
# Mounts are in the namespaces of children alone: nothing but files is removed here.
trap '[ -z "$child" ] || kill $child 2>/dev/null; wait; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM HUP
for system in ${systems//,/ }; do
  case $system in
  debian) bare debian-12 bookworm main debian-archive-keyring.gpg ;;
  ubuntu) bare ubuntu-24.04 noble main,universe ubuntu-archive-keyring.gpg ;;
  *) echo "check-bare: no system '$system': debian, ubuntu" >&2; exit 1 ;;
  esac
done
finish
