#!/bin/sh
# Runs the image as it is meant to be: as nobody, with a root that cannot be written, without capabilities.
# Variables come from ENV_FILE, or env.txt if it is there; arguments are those of `turnout`. Folders of MOUNTS (by
# spaces) are seen under their own names, and cannot be written either; STATE is a folder or volume that keeps
# /var/lib/turnout; PUBLISH has the ports (by spaces), those of gRPC and HTTP on the loopback address if not given.
#
# Where there is buildah alone and one is root, the image is run in a chroot with the same mounts and the network of the
# machine: good to try it, no way to run it for others.
set -eu
. "$(dirname "$0")/engine.sh"
engine=$(engine_for run)
image=${IMAGE:-turnout}
state=${STATE:-turnout}
file=${ENV_FILE:-env.txt}
[ -z "${ENV_FILE:-}" ] || [ -f "$file" ] || { echo "there is no file $file, which ENV_FILE names" >&2; exit 2; }
[ "$#" -gt 0 ] || set -- subscriptions serve

if [ "$engine" != buildah ]; then
    for folder in ${MOUNTS:-}; do set -- "$folder" "$@"; done
    count=$(echo "${MOUNTS:-}" | wc -w)
    options=
    while [ "$count" -gt 0 ]; do options="$options --volume $1:$1:ro" && shift && count=$((count - 1)); done
    for port in ${PUBLISH:-127.0.0.1:8080:8080 127.0.0.1:8090:8090}; do options="$options --publish $port"; done
    # A published port reaches the container's own address, and nothing that listens on its loopback alone.
    grep -qs "^API_HOST=" "$file" || options="$options --env API_HOST=0.0.0.0"
    [ ! -f "$file" ] || options="$options --env-file $file"
    # shellcheck disable=SC2086 # options are words
    exec "$engine" run --rm --init --read-only --cap-drop ALL --security-opt no-new-privileges --tmpfs /tmp:exec \
        --volume "$state:/var/lib/turnout" $options "$image" "$@"
fi

[ "$(id -u)" = 0 ] || { echo "a chroot needs root: install podman to run $image" >&2; exit 2; }
case $state in /*) ;; *) state=${XDG_STATE_HOME:-$HOME/.local/state}/$state ;; esac
mkdir -p "$state" && chown 10001:10001 "$state"
container=$(buildah from --pull-never "$image")
trap 'buildah umount "$container" >/dev/null; buildah rm "$container" >/dev/null' EXIT
root=$(buildah mount "$container")
variables=$(buildah inspect --format '{{range .OCIv1.Config.Env}}{{println .}}{{end}}' "$container")
[ ! -f "$file" ] || variables="$variables $(grep -v "^#" "$file" || true)"
# Its network is the machine's, which would be open to others: there it listens on the loopback address.
variables="$variables API_HOST=127.0.0.1"
# What is mounted here is mounted for this process and its children alone, and goes with them.
export root state variables MOUNTS="${MOUNTS:-}"
# shellcheck disable=SC2016 # the inner shell reads its own variables
unshare --mount sh -euc '
    mount --bind "$root" "$root"
    mount -t proc proc "$root/proc"
    mount --rbind /dev "$root/dev"
    mount -t tmpfs -o exec,mode=1777 tmpfs "$root/tmp"
    mount --bind "$state" "$root/var/lib/turnout"
    # Made here: some may lie below /tmp, which is new.
    for folder in $MOUNTS; do mkdir -p "$root$folder" && mount --bind "$folder" "$root$folder" && mount -o remount,ro,bind "$root$folder"; done
    mount -o remount,ro,bind "$root"
    cd /
    # shellcheck disable=SC2086 # variables are words
    exec chroot --userspec 10001:10001 --groups= "$root" \
        env -i HOME=/var/lib/turnout $variables setpriv --no-new-privs turnout "$@"
' turnout "$@" &
child=$!
trap 'kill -TERM "$child"' TERM INT
# A signal ends the first wait; the second has the end of what it was passed on to.
status=0
wait "$child" || status=$?
if kill -0 "$child" 2>/dev/null; then status=0 && { wait "$child" || status=$?; }; fi
exit "$status"
