# MXNet's wheel holds no CUDA, and its library looks for one beside itself: there it finds links to NVIDIA's wheels.
set -eu
packages="$(python -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')"
for library in "$packages"/nvidia/*/lib/lib*.so.*; do
    ln -sf "../nvidia/${library#"$packages"/nvidia/}" "$packages/mxnet/"
done
