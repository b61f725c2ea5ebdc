#!/bin/bash
# A command on a machine that looks as if it had an NVIDIA GPU: its nodes in /dev, its libraries in the loader's cache. No GPU is there.
#
#   unshare --mount --propagation private tests/stand_ins/gpu_namespace.sh FOLDER LIBRARY... -- COMMAND...
#
# Root only; nothing outside the namespace changes. FOLDER is for what is mounted.
set -euo pipefail
folder=$1; shift
libraries=()
while [ "$1" != -- ]; do libraries+=("$1"); shift; done
shift
mkdir -p "$folder"/{dev,libs}
mount -t tmpfs none "$folder/dev"
for node in null zero random urandom tty full ptmx fuse; do cp -a "/dev/$node" "$folder/dev/" 2>/dev/null || true; done
mkdir "$folder"/dev/{pts,shm,nvidia-caps}
ln -s /proc/self/fd "$folder/dev/fd"
for name in stdin:0 stdout:1 stderr:2; do ln -s "/proc/self/fd/${name#*:}" "$folder/dev/${name%:*}"; done
mount --bind /dev/pts "$folder/dev/pts"
mount --bind /dev/shm "$folder/dev/shm"
# Character devices that answer as /dev/null does.
for node in nvidia0 nvidiactl nvidia-uvm nvidia-uvm-tools nvidia-caps/nvidia-cap1; do mknod -m 666 "$folder/dev/$node" c 1 3; done
mount --rbind "$folder/dev" /dev
for library in libnvidia-ptxjitcompiler.so.1 libnvidia-nvvm.so.4; do gcc -shared -o "$folder/libs/$library" -Wl,-soname,$library -x c /dev/null; done
cp "${libraries[@]}" "$folder/libs/"
cp -a /etc "$folder/etc"
mount --bind "$folder/etc" /etc
/sbin/ldconfig -C /etc/ld.so.cache "$folder/libs"
export LD_LIBRARY_PATH=$folder/libs
exec "$@"
