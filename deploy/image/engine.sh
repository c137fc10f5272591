# The container engine that is there: ENGINE, or the first of docker, podman and buildah that works.
engine_for() {
    for engine in ${ENGINE:-docker podman buildah}; do
        command -v "$engine" >/dev/null || continue
        case $engine in
        docker) docker info >/dev/null 2>&1 || continue ;;
        esac
        echo "$engine"
        return
    done
    echo "no container engine can $1 here: expected docker with its daemon, podman or buildah" >&2
    return 2
}
