#!/usr/bin/env bash
# What an image has to do: container.sh IMAGE [PORT]. Hardened as docker-compose.yml has it, without a place to write.
# DOCKER names another client, CONTAINER_RUN_OPTS what it needs besides.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
image=$1 port=${2:-8000} docker=${DOCKER:-docker} name=sentiment-test-$$
limit=450000000 options=${CONTAINER_RUN_OPTS:-}

say() { printf '%s\n' "$*"; }
fail() { say "FAIL: $*" >&2; "$docker" logs "$name" >&2 || true; exit 1; }
start() {
    "$docker" run -d --name "$name" --read-only --cap-drop ALL --security-opt no-new-privileges \
        -p "127.0.0.1:$port:8000" $options "$@" "$image" >/dev/null
    for _ in $(seq 300); do curl -fsS -m 2 "http://127.0.0.1:$port/readyz" >/dev/null 2>&1 && return; sleep 0.1; done
    fail "not ready after 30 s"
}
healthy() {
    if [ "$docker" = podman ]; then podman healthcheck run "$name"; return; fi
    for _ in $(seq 40); do [ "$("$docker" inspect -f '{{.State.Health.Status}}' "$name")" = healthy ] && return; sleep 0.5; done
    return 1
}
stop() {
    "$docker" stop -t 40 "$name" >/dev/null
    [ "$("$docker" inspect -f '{{.State.ExitCode}}' "$name")" = 0 ] || fail "exit status not 0 after SIGTERM"
    "$docker" rm "$name" >/dev/null
}
trap '"$docker" rm -f "$name" >/dev/null 2>&1 || true' EXIT

size=$("$docker" run --rm $options --entrypoint sh "$image" -c 'du -xsb / 2>/dev/null || true' | cut -f1)
"$docker" run --rm $options --entrypoint sh "$image" -c \
    'cd /opt/sentiment/lib/python3.11/site-packages && { du -xsm /usr; du -sm *; } | sort -rn | head -12'
[ "$size" -le "$limit" ] || fail "the image holds $size bytes; $limit are allowed"
say "size: $size bytes unpacked"

start
[ "$("$docker" exec "$name" id -u)" = 10001 ] || fail "runs as another user than 10001"
"$docker" exec "$name" grep -qE '^CapEff:\s+0+$' /proc/1/status || fail "has capabilities"
if "$docker" exec "$name" touch /opt/sentiment/x 2>/dev/null; then fail "writes to its root"; fi
if "$docker" exec "$name" sh -c 'command -v gcc || command -v cc || test -e /root/.cache/pip'; then fail "left a compiler or a cache"; fi
healthy || fail "its HEALTHCHECK fails"
answer=$(curl -fsS "http://127.0.0.1:$port/classify" -H 'content-type: application/json' -d '{"inputs": "I love it"}')
grep -q '"label":"positive"' <<<"$answer" || fail "answered $answer"
say "answers: $answer"
stop
say "SIGTERM: exit status 0"

start -v "$PWD/tests/tiny:/model:ro" -e SENTIMENT_MODEL=/model
curl -fsS "http://127.0.0.1:$port/info" | grep -q '"model":"tiny"' || fail "does not serve the mounted model"
stop
say "a mounted model replaces the image's: OK"
