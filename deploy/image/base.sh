#!/bin/sh
# Makes debian:trixie-slim of Debian's packages, for buildah or podman, where no registry of images is reached.
#   deploy/image/base.sh [TAG] [MIRROR]
set -eu
tag=${1:-localhost/debian:trixie-slim}
mirror=${2:-http://deb.debian.org/debian}
tar=$(mktemp --suffix .tar)
trap 'rm -f "$tar"' EXIT

# What a slim image leaves out, from the first package on.
mmdebstrap --quiet --variant=minbase \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/info/*' \
    --customize-hook='rm -rf "$1"/var/lib/apt/lists/* "$1"/var/cache/* "$1"/var/log/*' \
    trixie "$tar" "$mirror"
if command -v buildah >/dev/null; then
    container=$(buildah from scratch)
    buildah add --quiet "$container" "$tar" / >/dev/null
    buildah config --cmd bash "$container"
    buildah commit --quiet --rm "$container" "$tag" >/dev/null
else
    podman import --quiet "$tar" "$tag" >/dev/null
fi
echo "$tag"
