# Paddle's wheel holds no CUDA. Its library opens NVIDIA's by names without a version, and looks beside itself first: there it finds
# links to NVIDIA's wheels under both names.
set -eu
packages="$(python -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')"
for library in "$packages"/nvidia/*/lib/lib*.so.*; do
    name="${library##*/}"
    ln -sf "../../nvidia/${library#"$packages"/nvidia/}" "$packages/paddle/libs/$name"
    ln -sf "$name" "$packages/paddle/libs/${name%%.so.*}.so"
done
