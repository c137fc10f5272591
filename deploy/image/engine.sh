# The container engine that is there: ENGINE, or the first of docker, podman and buildah that works.
engine_for() {
    for engine in ${ENGINE:-docker podman buildah}; do
        command -v "$engine" >/dev/null || continue
        case $engine in
        docker) docker info >/dev/null 2>&1 || continue ;;
        buildah) [ "$1" = build ] || continue ;;
        esac
        echo "$engine"
        return
    done
    echo "no container engine can $1 here: expected docker with its daemon, podman${1:+ or buildah, which only builds}" >&2
    return 2
}
