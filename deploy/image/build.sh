#!/bin/sh
# Builds the image of dist/*.whl with the engine that is there: docker with a daemon, podman or buildah.
#
#   ENGINE       one of them, if it should not be the first that works
#   IMAGE        its name and tag, turnout
#   BASE         a Debian 13; deploy/image/base.sh makes one of packages
#   BASE_DIGEST  sha256:…, the very image of that name to take; needed unless BASE is localhost/… or has a digest itself
#   UNPINNED_BASE  yes to build without a digest: the tag decides, which others can move
#   AUTHORITIES  a file of certificates (PEM) that pip shall trust, for networks that look into TLS
#   PIP_CONFIG   a pip.conf with an index of one's own
#   PLATFORM     linux/amd64, linux/arm64; another one than this machine's needs its emulator (binfmt)
# Further arguments are the engine's. Without user namespaces: BUILDAH_ISOLATION=chroot STORAGE_DRIVER=vfs.
set -eu
cd "$(dirname "$0")/../.."
. deploy/image/engine.sh

wheel=$(ls dist/turnout-*.whl 2>/dev/null) || { echo "there is no wheel in dist/: make wheel" >&2; exit 2; }
[ "$(echo "$wheel" | wc -l)" = 1 ] || { echo "expected one wheel in dist/, found $(echo "$wheel" | wc -l): make wheel" >&2; exit 2; }
version=$(basename "$wheel" | cut -d- -f2)
revision=$(git rev-parse HEAD 2>/dev/null || echo unknown)

engine=$(engine_for build)
set -- --file deploy/Dockerfile --tag "${IMAGE:-turnout}" \
    --build-arg "VERSION=$version" --build-arg "REVISION=$revision" "$@"
case ${BASE_DIGEST:-} in
sha256:*) set -- --build-arg "BASE_DIGEST=$BASE_DIGEST" "$@" ;;
"") case ${BASE:-debian} in localhost/* | *@sha256:*) ;; *)
    if [ "${UNPINNED_BASE:-}" != yes ]; then
        echo "the base ${BASE:-debian:trixie-slim} is not pinned: set BASE_DIGEST=sha256:…, or UNPINNED_BASE=yes to take what its tag names now" >&2
        exit 2
    fi ;;
esac ;;
*) echo "BASE_DIGEST: expected sha256:…, found $BASE_DIGEST" >&2 && exit 2 ;;
esac
[ -z "${BASE:-}" ] || set -- --build-arg "BASE=$BASE" "$@"
[ -z "${AUTHORITIES:-}" ] || set -- --secret "id=authorities,src=$AUTHORITIES" "$@"
[ -z "${PIP_CONFIG:-}" ] || set -- --secret "id=pip,src=$PIP_CONFIG" "$@"
[ -z "${PLATFORM:-}" ] || set -- --platform "$PLATFORM" "$@"
case $engine in
# An OCI image has no place for a health check; Docker's own format has.
buildah | podman) set -- --format docker --layers "$@" ;;
esac
echo "$engine builds ${IMAGE:-turnout} $version" >&2
"$engine" build "$@" .
"$engine" inspect --format "{{.Size}}" "${IMAGE:-turnout}" 2>/dev/null | awk '{printf "%.0f MB\n", $1 / 1e6}' >&2 || true
