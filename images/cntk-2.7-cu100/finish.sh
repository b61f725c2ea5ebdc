# CNTK's libraries name OpenMPI 1.10's; Debian's 4.1 serves a single process and was seen to serve two. They look beside themselves first.
set -eu
libs="$(python -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')/cntk/libs"
find_library() { ldconfig -p | sed -n "s|.*$1 (libc6,x86-64).* => ||p" | head -n 1; }
mpi="$(find_library libmpi.so.40)"
cxx="$(find_library libmpi_cxx.so.40)"
[ -n "$mpi" ] && [ -n "$cxx" ] || { echo "libmpi.so.40 or libmpi_cxx.so.40 is not here: install libopenmpi3" >&2; exit 1; }
ln -sf "$mpi" "$libs/libmpi.so.12"
ln -sf "$cxx" "$libs/libmpi_cxx.so.1"
