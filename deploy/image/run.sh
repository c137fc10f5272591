#!/bin/sh
# Runs the image as it is meant to be: as nobody, with a root that cannot be written, without capabilities.
# Variables come from env.txt, if it is there; arguments are those of `turnout`.
set -eu
. "$(dirname "$0")/engine.sh"
engine=$(engine_for run)
[ -f env.txt ] && environment="--env-file env.txt" || environment=
[ "$#" -gt 0 ] || set -- subscriptions serve
# shellcheck disable=SC2086
exec "$engine" run --rm --init --read-only --cap-drop ALL --security-opt no-new-privileges --tmpfs /tmp:exec \
    --volume turnout:/var/lib/turnout --publish 127.0.0.1:8080:8080 --publish 127.0.0.1:8090:8090 \
    $environment "${IMAGE:-turnout}" "$@"
