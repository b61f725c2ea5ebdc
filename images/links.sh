# NVIDIA's wheels install each library into a folder of its own, and not every library is told of the folders of those that it opens. cuDNN before
# 9.19 looks for NVRTC in nvidia/nvrtc/lib, and its wheel installs into nvidia/cuda_nvrtc/lib: without it cuDNN 8 ends the process, and cuDNN 9
# loses the engines that it compiles. All look beside themselves. So each folder gets links to the libraries of the others, and to each of its own
# by the name without a version, as NVIDIA's installer of the toolkit makes them.
set -eu
nvidia="$(python -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')/nvidia"
for folder in "$nvidia"/*/lib; do
    [ -d "$folder" ] || continue
    cd "$folder"
    for library in lib*.so.*; do
        plain="${library%%.so.*}.so"
        if [ -e "$library" ] && [ ! -e "$plain" ]; then ln -s "$library" "$plain"; fi
    done
done
for folder in "$nvidia"/*/lib; do
    [ -d "$folder" ] || continue
    cd "$folder"
    set --
    for library in ../../*/lib/lib*.so*; do
        if [ -e "$library" ] && [ ! -e "${library##*/}" ]; then set -- "$@" "$library"; fi
    done
    if [ $# -gt 0 ]; then ln -sf "$@" .; fi
done
